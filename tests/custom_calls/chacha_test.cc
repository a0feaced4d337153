// ChaCha20 of the reference and of every instruction set against RFC 8439, and
// against each other where the standard has no vector.
#include <cstdint>
#include <string>
#include <vector>

#include "custom_calls/cpu/noise/gaussian.h"
#include "custom_calls/reference/gaussian.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/test_data.h"

namespace bk {
namespace {

using reference::Chacha20;
using reference::ChachaBlock;

// Bytes 00, 01, ... 1f: the key of the examples in sections 2.3.2 and 2.4.2.
constexpr uint32_t kKey[kKeyWords] = {0x03020100, 0x07060504, 0x0b0a0908,
                                      0x0f0e0d0c, 0x13121110, 0x17161514,
                                      0x1b1a1918, 0x1f1e1d1c};
constexpr uint32_t kZeroKey[kKeyWords] = {};

struct BlockVector {
  NoiseStream stream;  // of key and the last two words of the nonce
  uint32_t nonce;      // its first word
  uint32_t counter;
  ChachaBlock block;
};

NoiseStream Stream(const uint32_t (&key)[kKeyWords], uint32_t stream,
                   uint32_t domain) {
  NoiseStream result = {};
  for (int64_t i = 0; i < kKeyWords; ++i) result.key[i] = key[i];
  result.stream = stream;
  result.domain = domain;
  return result;
}

std::vector<BlockVector> BlockVectors() {
  return {
      // Section 2.3.2.
      {Stream(kKey, 0x4a000000, 0),
       0x09000000,
       1,
       {0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3, 0xc7f4d1c7, 0x0368c033,
        0x9aaa2204, 0x4e6cd4c3, 0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
        0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2}},
      // Appendix A.1, vectors 1 and 2.
      {Stream(kZeroKey, 0, 0),
       0,
       0,
       {0xade0b876, 0x903df1a0, 0xe56a5d40, 0x28bd8653, 0xb819d2bd, 0x1aed8da0,
        0xccef36a8, 0xc70d778b, 0x7c5941da, 0x8d485751, 0x3fe02477, 0x374ad8b8,
        0xf4b8436a, 0x1ca11815, 0x69b687c3, 0x8665eeb2}},
      {Stream(kZeroKey, 0, 0),
       0,
       1,
       {0xbee7079f, 0x7a385155, 0x7c97ba98, 0x0d082d73, 0xa0290fcb, 0x6965e348,
        0x3e53c612, 0xed7aee32, 0x7621b729, 0x434ee69c, 0xb03371d5, 0xd539d874,
        0x281fed31, 0x45fb0a51, 0x1f0ae1ac, 0x6f4d794b}},
  };
}

TEST(ChachaReferenceTest, BlockFunctionOfTheStandard) {
  for (const BlockVector& v : BlockVectors()) {
    const uint32_t nonce[3] = {v.nonce, v.stream.stream, v.stream.domain};
    EXPECT_EQ(Chacha20(v.stream.key, v.counter, nonce), v.block);
  }
}

class ChachaTest : public IsaTest {
 protected:
  uint32_t KernelWord(const NoiseStream& stream, uint64_t position) {
    uint32_t word = 0;
    kernels().chacha({stream, position, 1, &word});
    return word;
  }
  // Word w of a block, by the order that noise.h defines.
  uint32_t BlockWord(const NoiseStream& stream, uint64_t block, uint64_t w) {
    return KernelWord(stream, block / 16 * 256 + 16 * w + block % 16);
  }
};
BK_INSTANTIATE_FOR_EACH_ISA(ChachaTest);

TEST_P(ChachaTest, BlockFunctionOfTheStandard) {
  for (const BlockVector& v : BlockVectors()) {
    const uint64_t block = uint64_t{v.nonce} << 32 | v.counter;
    for (uint64_t w = 0; w < v.block.size(); ++w) {
      EXPECT_EQ(BlockWord(v.stream, block, w), v.block[w]) << w;
    }
  }
}

// Section 2.4.2: the keystream makes the ciphertext from the plaintext.
TEST_P(ChachaTest, KeystreamOfTheStandard) {
  const std::string text =
      "Ladies and Gentlemen of the class of '99: If I could offer you only one "
      "tip for the future, sunscreen would be it.";
  const uint8_t expected[] = {
      0x6e, 0x2e, 0x35, 0x9a, 0x25, 0x68, 0xf9, 0x80, 0x41, 0xba, 0x07, 0x28,
      0xdd, 0x0d, 0x69, 0x81, 0xe9, 0x7e, 0x7a, 0xec, 0x1d, 0x43, 0x60, 0xc2,
      0x0a, 0x27, 0xaf, 0xcc, 0xfd, 0x9f, 0xae, 0x0b, 0xf9, 0x1b, 0x65, 0xc5,
      0x52, 0x47, 0x33, 0xab, 0x8f, 0x59, 0x3d, 0xab, 0xcd, 0x62, 0xb3, 0x57,
      0x16, 0x39, 0xd6, 0x24, 0xe6, 0x51, 0x52, 0xab, 0x8f, 0x53, 0x0c, 0x35,
      0x9f, 0x08, 0x61, 0xd8, 0x07, 0xca, 0x0d, 0xbf, 0x50, 0x0d, 0x6a, 0x61,
      0x56, 0xa3, 0x8e, 0x08, 0x8a, 0x22, 0xb6, 0x5e, 0x52, 0xbc, 0x51, 0x4d,
      0x16, 0xcc, 0xf8, 0x06, 0x81, 0x8c, 0xe9, 0x1a, 0xb7, 0x79, 0x37, 0x36,
      0x5a, 0xf9, 0x0b, 0xbf, 0x74, 0xa3, 0x5b, 0xe6, 0xb4, 0x0b, 0x8e, 0xed,
      0xf2, 0x78, 0x5e, 0x42, 0x87, 0x4d};
  ASSERT_EQ(text.size(), sizeof expected);
  const NoiseStream stream = Stream(kKey, 0x4a000000, 0);
  for (uint64_t i = 0; i < text.size(); ++i) {
    const uint32_t word = BlockWord(stream, 1 + i / 64, i % 64 / 4);
    const auto key_byte = static_cast<uint8_t>(word >> (8 * (i % 4)));
    EXPECT_EQ(static_cast<uint8_t>(text[i]) ^ key_byte, expected[i]) << i;
  }
}

TEST_P(ChachaTest, WordsOfTheReferenceAtAnyPosition) {
  const NoiseStream stream = Stream(kKey, 7, 3);
  // Around groups, 2^32 words, the carry into the second half of the block
  // index (2^32 blocks are 2^36 words), and the end of all streams.
  for (uint64_t start :
       {uint64_t{0}, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 36,
        uint64_t{1} << 40, uint64_t{1} << 62, ~uint64_t{0} - 600}) {
    for (uint64_t k : {0, 1, 15, 16, 17, 255, 256, 257, 511, 599}) {
      const uint64_t position = start + k;
      EXPECT_EQ(KernelWord(stream, position), reference::Word(stream, position))
          << position;
      if (start == 0 || k == 0) continue;
      EXPECT_EQ(KernelWord(stream, start - k),
                reference::Word(stream, start - k));
    }
  }
}

TEST_P(ChachaTest, AnyRangeOnAnyThreads) {
  const NoiseStream stream = Stream(kKey, 1, 2);
  const int64_t size = 40000;
  Array<uint32_t> all(size);
  kernels().chacha({stream, 0, size, all.data()});
  StripedParallel striped(3);
  for (uint64_t first : {0, 1, 255, 256, 16383, 16385}) {
    for (int64_t count : {0, 1, 255, 256, 257, 20000}) {
      Array<uint32_t> words(count);
      ChachaWords(kernels(), striped, stream, first, count, words.data());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(words[i], all[static_cast<int64_t>(first) + i]);
      }
    }
  }
}

TEST_P(ChachaTest, KeyStreamAndDomainMatter) {
  const NoiseStream stream = Stream(kKey, 1, 2);
  const uint32_t word = KernelWord(stream, 5);
  for (int64_t i = 0; i < kKeyWords; ++i) {
    NoiseStream other = stream;
    other.key[i] ^= 1;
    EXPECT_NE(KernelWord(other, 5), word);
  }
  EXPECT_NE(KernelWord(Stream(kKey, 2, 2), 5), word);
  EXPECT_NE(KernelWord(Stream(kKey, 1, 1), 5), word);
}

}  // namespace
}  // namespace bk
