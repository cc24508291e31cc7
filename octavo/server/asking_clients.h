// Clients without an answer to wait for, by address and by age: whom the server may cut to make room. Every change and
// every question takes the logarithm of their number, because a flood of connections asks once for each of them.
#pragma once

#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace octavo::server {

template <typename Client>
class AskingClients {
 public:
  struct Group {
    Client* oldest = nullptr;  // null: nobody asks
    int count = 0;
  };

  // From now on: a client that is there already becomes the newest of its address.
  void Add(Client* client, const std::string& address) {
    Remove(client);
    const auto group = groups_.try_emplace(address).first;
    Rank(group, [&] { places_[client] = {group, group->second.insert(group->second.end(), client)}; });
  }
  void Remove(Client* client) {
    const auto found = places_.find(client);
    if (found == places_.end()) return;
    const auto group = found->second.group;
    Rank(group, [&] { group->second.erase(found->second.at); });
    places_.erase(found);
    if (group->second.empty()) groups_.erase(group);
  }

  Group Of(const std::string& address) const {
    const auto found = groups_.find(address);
    return found == groups_.end() ? Group{} : Describe(found->second);
  }
  // Of the address that has most of them; of several, the first by name.
  Group Largest() const { return ranked_.empty() ? Group{} : Describe(groups_.find(ranked_.begin()->second)->second); }

 private:
  using Groups = std::map<std::string, std::list<Client*>, std::less<>>;
  struct Place {
    typename Groups::iterator group;
    typename std::list<Client*>::iterator at;
  };

  static Group Describe(const std::list<Client*>& clients) {
    return {clients.front(), static_cast<int>(clients.size())};
  }
  // Takes a group out of the order by size, changes it and puts it back.
  template <typename Change>
  void Rank(typename Groups::iterator group, Change&& change) {
    ranked_.erase({-static_cast<int>(group->second.size()), group->first});
    change();
    if (!group->second.empty()) ranked_.emplace(-static_cast<int>(group->second.size()), group->first);
  }

  Groups groups_;
  std::set<std::pair<int, std::string_view>> ranked_;  // the largest first
  std::unordered_map<Client*, Place> places_;
};

}  // namespace octavo::server
