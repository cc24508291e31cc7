#include "octavo/server/asking_clients.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace octavo::server {
namespace {

struct Client {
  std::string address;
  int64_t since = -1;  // negative: does not ask
};

TEST(AskingClients, TheOldestOfTheAddressThatHasMost) {
  AskingClients<Client> asking;
  Client a, b, c;
  EXPECT_EQ(asking.Largest().oldest, nullptr);
  asking.Add(&a, "1");
  asking.Add(&b, "2");
  asking.Add(&c, "2");
  EXPECT_EQ(asking.Largest().oldest, &b);
  EXPECT_EQ(asking.Largest().count, 2);
  asking.Add(&b, "2");  // asks anew, so it is the newest
  EXPECT_EQ(asking.Largest().oldest, &c);
  asking.Remove(&c);
  asking.Remove(&c);
  EXPECT_EQ(asking.Of("2").oldest, &b);
  asking.Remove(&b);
  EXPECT_EQ(asking.Of("2").count, 0);
  EXPECT_EQ(asking.Largest().oldest, &a);
}

// Against looking at every client.
TEST(AskingClients, AgreesWithASearchThroughAll) {
  std::mt19937 random(7);
  std::vector<Client> clients(60);
  for (size_t i = 0; i < clients.size(); ++i) clients[i].address = std::to_string(i % 7);
  AskingClients<Client> asking;
  for (int64_t step = 0; step < 20000; ++step) {
    Client& one = clients[random() % clients.size()];
    if (random() % 3 == 0) {
      one.since = -1;
      asking.Remove(&one);
    } else {
      one.since = step;
      asking.Add(&one, one.address);
    }
    int counts[7] = {};
    const Client* oldest[7] = {};
    for (const Client& client : clients) {
      if (client.since < 0) continue;
      const size_t at = std::stoul(client.address);
      ++counts[at];
      if (oldest[at] == nullptr || client.since < oldest[at]->since) oldest[at] = &client;
    }
    int largest = 0;
    for (int i = 1; i < 7; ++i) largest = counts[i] > counts[largest] ? i : largest;
    ASSERT_EQ(asking.Largest().oldest, oldest[largest]) << step;
    ASSERT_EQ(asking.Largest().count, counts[largest]) << step;
    ASSERT_EQ(asking.Of("3").oldest, oldest[3]) << step;
    ASSERT_EQ(asking.Of("3").count, counts[3]) << step;
  }
}

}  // namespace
}  // namespace octavo::server
