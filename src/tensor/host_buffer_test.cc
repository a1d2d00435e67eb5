#include "tensor/host_buffer.h"

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(HostBuffer, IsZeroedAndMovable) {
  auto buffer = HostBuffer::allocate(10000);
  ASSERT_TRUE(buffer.has_value());
  EXPECT_EQ(buffer->size(), 10000u);
  EXPECT_EQ(buffer->data()[9999], std::byte{0});
  buffer->data()[1] = std::byte{7};
  HostBuffer moved = std::move(*buffer);
  EXPECT_EQ(moved.data()[1], std::byte{7});
  EXPECT_EQ(buffer->size(), 0u);
}

TEST(HostBuffer, AnImpossibleSizeIsAnError) { EXPECT_FALSE(HostBuffer::allocate(uint64_t{1} << 60).has_value()); }

}  // namespace
}  // namespace gimbal
