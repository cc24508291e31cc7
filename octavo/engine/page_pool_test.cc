// Pages by number: who holds them, which are known by content, and which content goes first when room is needed.
#include "octavo/engine/page_pool.h"

#include <gtest/gtest.h>

namespace octavo::engine {
namespace {

using Tokens = std::vector<int32_t>;
using Node = PagePool::Node;

// A page with this content that nobody uses any more.
Node Leave(PagePool& pool, Node parent, const Tokens& tokens, const std::string& root = "") {
  const int32_t page = pool.Take();
  const Node node = pool.Remember(parent, root, tokens, page);
  pool.Release(page);
  return node;
}

TEST(PagePool, FreePagesGoFirstAndComeBack) {
  PagePool pool(3);
  EXPECT_EQ(pool.size(), 3);
  const int32_t a = pool.Take(), b = pool.Take(), c = pool.Take();
  EXPECT_EQ((std::vector{a, b, c}), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(pool.available(), 0);
  pool.Release(b);
  EXPECT_EQ(pool.available(), 1);
  EXPECT_EQ(pool.Take(), b);
  EXPECT_EQ(pool.known(), 0);
}

TEST(PagePool, AKnownPageStaysUntilItsRoomIsNeeded) {
  PagePool pool(2);
  const Node node = Leave(pool, 0, {1, 2});
  EXPECT_EQ(pool.available(), 2);
  const int32_t other = pool.Take();  // the free one, not the known one
  ASSERT_TRUE(pool.Find(0, "", Tokens{1, 2}));
  EXPECT_EQ(pool.Find(0, "", Tokens{1, 2})->node, node);
  EXPECT_NE(pool.Find(0, "", Tokens{1, 2})->page, other);
  EXPECT_EQ(pool.Take(), 1 - other);
  EXPECT_FALSE(pool.Find(0, "", Tokens{1, 2}));
  EXPECT_EQ(pool.known(), 0);
  EXPECT_EQ(pool.available(), 0);
}

TEST(PagePool, TheLongestUnusedContentIsForgottenFirst) {
  PagePool pool(3);
  Leave(pool, 0, {1});
  Leave(pool, 0, {2});
  Leave(pool, 0, {3});
  const auto known = [&] {
    std::string text;
    for (int32_t token : {1, 2, 3}) text += pool.Find(0, "", Tokens{token}) ? std::to_string(token) : "-";
    return text;
  };
  // Used again: 1 is the youngest now. Asking alone is no use.
  const int32_t first = pool.Find(0, "", Tokens{1})->page;
  pool.Share(first);
  EXPECT_EQ(pool.available(), 2);
  pool.Release(first);
  pool.Find(0, "", Tokens{2});
  pool.Take();
  EXPECT_EQ(known(), "1-3");
  pool.Take();
  EXPECT_EQ(known(), "1--");
  pool.Take();
  EXPECT_EQ(known(), "---");
}

TEST(PagePool, SharedPagesAreNotTaken) {
  PagePool pool(2);
  const int32_t page = pool.Take();
  pool.Remember(0, "", Tokens{1}, page);
  EXPECT_FALSE(pool.IsShared(page));
  pool.Share(page);
  EXPECT_TRUE(pool.IsShared(page));  // its next writer copies it first
  pool.Release(page);
  EXPECT_FALSE(pool.IsShared(page));
  EXPECT_EQ(pool.available(), 1);
  EXPECT_NE(pool.Take(), page);
  EXPECT_EQ(pool.available(), 0);
  pool.Release(page);
  EXPECT_EQ(pool.available(), 1);
  // Found and shared while idle: it has an owner again.
  const auto found = pool.Find(0, "", Tokens{1});
  ASSERT_TRUE(found);
  pool.Share(found->page);
  EXPECT_EQ(pool.available(), 0);
  EXPECT_FALSE(pool.IsShared(page));
}

TEST(PagePool, ContentIsTheWholeWayToIt) {
  PagePool pool(8);
  const Node a = Leave(pool, 0, {1}, "base"), b = Leave(pool, 0, {2}, "base");
  const Node behind_a = Leave(pool, a, {7}, "base");
  EXPECT_EQ(pool.Find(a, "base", Tokens{7})->node, behind_a);
  EXPECT_FALSE(pool.Find(b, "base", Tokens{7}));
  EXPECT_FALSE(pool.Find(0, "base", Tokens{7}));
  EXPECT_FALSE(pool.Find(0, "another adapter", Tokens{1}));
  EXPECT_FALSE(pool.Find(0, "base", (Tokens{1, 7})));
  // Behind a parent the root says nothing: the parent has it already.
  EXPECT_EQ(pool.Find(a, "another adapter", Tokens{7})->node, behind_a);
  // A content that comes back after it was forgotten is a new one: nothing hangs under the old node.
  pool.Forget();
  EXPECT_NE(Leave(pool, 0, {1}, "base"), a);
}

// Two prompts computed the same page at the same time: the first is known, the second keeps its own page and goes on
// under the first one's node.
TEST(PagePool, ATwinIsNotKnown) {
  PagePool pool(2);
  const int32_t first = pool.Take(), twin = pool.Take();
  const Node node = pool.Remember(0, "", Tokens{1}, first);
  EXPECT_EQ(pool.Remember(0, "", Tokens{1}, twin), node);
  EXPECT_EQ(pool.known(), 1);
  EXPECT_EQ(pool.Find(0, "", Tokens{1})->page, first);
  pool.Release(twin);  // free at once
  pool.Release(first);
  EXPECT_EQ(pool.available(), 2);
  EXPECT_EQ(pool.Take(), twin);
  EXPECT_TRUE(pool.Find(0, "", Tokens{1}));
}

TEST(PagePool, ForgettingLeavesOwnersTheirPages) {
  PagePool pool(3);
  Leave(pool, 0, {1});
  const int32_t held = pool.Take();
  pool.Remember(0, "", Tokens{2}, held);
  pool.Forget();
  EXPECT_EQ(pool.known(), 0);
  EXPECT_FALSE(pool.Find(0, "", Tokens{2}));
  EXPECT_EQ(pool.available(), 2);
  pool.Release(held);  // free, not idle
  EXPECT_EQ(pool.available(), 3);
  EXPECT_EQ(pool.Take(), held);
}

// Never more pages than the budget, whatever comes and goes.
TEST(PagePool, TheBudgetHolds) {
  PagePool pool(4);
  for (int32_t i = 0; i < 100; ++i) {
    const int32_t page = pool.Take();
    pool.Remember(0, "", Tokens{i}, page);
    EXPECT_EQ(pool.available(), 3);
    pool.Release(page);
    EXPECT_EQ(pool.available(), 4);
    EXPECT_EQ(pool.known(), std::min(i + 1, 4));
    for (int32_t old = 0; old <= i; ++old) EXPECT_EQ(pool.Find(0, "", Tokens{old}).has_value(), old > i - 4) << old;
  }
}

}  // namespace
}  // namespace octavo::engine
