#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(ByteSize, UsesBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(24772608), "23.6 MiB");
  EXPECT_EQ(format_bytes(595180000000), "554.3 GiB");
}

}  // namespace
}  // namespace gimbal
