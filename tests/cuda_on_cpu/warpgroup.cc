#include "tests/cuda_on_cpu/warpgroup.h"

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "tests/cuda_on_cpu/memory.h"
#include "tests/cuda_on_cpu/tensor_core.h"

namespace bk::emulator {
namespace {

constexpr int kColumns = 128, kTerms = 16;
constexpr int kWarpRows = 16;
constexpr int kUnitBytes = 16;
constexpr int kWarpgroup = 128;           // threads
constexpr uint32_t kPoison = 0x7fabcdef;  // a NaN

struct Product {
  WarpgroupOperands operands;
  bool add;
  float* sums;
};

struct Products {
  std::vector<Product> open;
  std::deque<std::vector<Product>> groups;
  // What sums are, while their own place holds NaN.
  std::map<float*, std::array<float, kWarpgroupSums>> values;
  std::map<float*, int> pending;
  bool fenced = false;
  int64_t count = 0;
};

Products& ProductsOf(uint32_t thread) {
  static auto* products = new std::vector<Products>(kMaxThreads);
  return (*products)[thread];
}

bool any_products = false;  // in this block

void AbandonIf(const std::string& problem) {
  if (!problem.empty()) Abandon(problem + WhoRuns());
}

// A matrix descriptor, decoded: an operand with lines (rows of the left one,
// columns of the right one) and 16 terms along the sum.
class Operand {
 public:
  Operand(Major major, uint64_t bits)
      : major_(major),
        start_(Field(bits, 0)),
        leading_(Field(bits, 16)),
        stride_(Field(bits, 32)) {
    if (bits >> 62 != 1 || (bits >> 49 & 7) != 0) {
      Abandon(
          "wgmma: a descriptor without the 128-byte swizzle, or with a "
          "base offset" +
          WhoRuns());
    }
  }

  // Offset in shared memory of element k of a line.
  uint32_t At(int line, int k) const {
    const uint32_t plain =
        major_ == Major::kSum
            ? start_ + line / 8 * stride_ + line % 8 * 128 + 2 * k
            : start_ + line / 64 * leading_ + k / 8 * stride_ + k % 8 * 128 +
                  line % 64 * 2;
    return plain ^ (plain >> 7 & 7) << 4;
  }

  // Calls visit(offset) for every 16 bytes of `lines` lines.
  template <class Visit>
  void ForUnits(int first, int lines, const Visit& visit) const {
    const bool along = major_ == Major::kSum;
    for (int line = first; line < first + lines; line += along ? 1 : 8) {
      for (int k = 0; k < kTerms; k += along ? 8 : 1) visit(At(line, k));
    }
  }

  void Read(Format format, int line, double* out) const {
    for (int k = 0; k < kTerms; ++k) {
      uint16_t bits;
      std::memcpy(&bits, SharedBase() + At(line, k), sizeof(bits));
      out[k] = Element(format, bits);
    }
  }

 private:
  static uint32_t Field(uint64_t bits, int from) {
    return static_cast<uint32_t>(bits >> from & 0x3fff) << 4;
  }
  Major major_;
  uint32_t start_, leading_, stride_;
};

int FirstRow(uint32_t thread) {
  return static_cast<int>(thread % kWarpgroup / kWarpSize) * kWarpRows;
}

// The 16 bytes that this lane looks after for its warp: the units of the warp's
// rows and of all columns, dealt to its lanes.
template <class Visit>
void ForOwnUnits(const WarpgroupOperands& operands, const Visit& visit) {
  const Operand left(operands.major, operands.left);
  const Operand right(operands.major, operands.right);
  int next = 0;
  const auto deal = [&](uint32_t offset) {
    if (next++ % kWarpSize == Lane()) visit(SharedBase() + offset);
  };
  left.ForUnits(FirstRow(Now().thread), kWarpRows, deal);
  right.ForUnits(0, kColumns, deal);
}

void Poison(float* sums) {
  for (int e = 0; e < kWarpgroupSums; ++e) {
    std::memcpy(sums + e, &kPoison, sizeof(kPoison));
  }
}

void CheckPoison(const float* sums) {
  for (int e = 0; e < kWarpgroupSums; ++e) {
    uint32_t bits;  // not the number, which is NaN
    std::memcpy(&bits, sums + e, sizeof(bits));
    if (bits != kPoison) {
      Abandon("wgmma: sums changed before wgmma.wait_group" + WhoRuns());
    }
  }
}

// Sum 4 j + e: row lane / 4 + 8 (e / 2) of the warp, column
// 8 j + 2 (lane % 4) + e % 2.
void Execute(const Product& product, std::array<float, kWarpgroupSums>& sums) {
  const WarpgroupOperands& o = product.operands;
  const Operand left(o.major, o.left), right(o.major, o.right);
  double rows[2][kTerms], column[kTerms];
  for (int i = 0; i < 2; ++i) {
    left.Read(o.format, FirstRow(Now().thread) + Lane() / 4 + 8 * i, rows[i]);
  }
  for (int line = 0; line < kColumns / 4; ++line) {
    right.Read(o.format, line / 2 * 8 + Lane() % 4 * 2 + line % 2, column);
    for (int i = 0; i < 2; ++i) {
      float& sum = sums[line / 2 * 4 + i * 2 + line % 2];
      if (!product.add) sum = 0;
      for (int k = 0; k < kTerms; k += kStepTerms) {
        sum = TensorStep(sum, rows[i] + k, column + k);
      }
    }
  }
}

void Finish(Products& products, const std::vector<Product>& group) {
  const Moment now = Now();
  for (const Product& product : group) {
    CheckPoison(product.sums);
    ForOwnUnits(product.operands, [&](const char* unit) {
      AbandonIf(EndAsyncRead(unit, kUnitBytes, now));
    });
    auto& values = products.values[product.sums];
    Execute(product, values);
    if (--products.pending[product.sums] > 0) continue;
    std::memcpy(product.sums, values.data(), sizeof(values));
    products.values.erase(product.sums);
    products.pending.erase(product.sums);
  }
}

}  // namespace

void FenceAsyncProxy() { NoteProxyFence(); }

void WarpgroupFence(Site site) {
  ExchangeInWarp(~0u, {}, site);
  ProductsOf(Now().thread).fenced = true;
}

void WarpgroupMultiply(const WarpgroupOperands& operands, bool add, float* sums,
                       Site site) {
  const Payload* lanes =
      ExchangeInWarp(~0u, {{operands.left, operands.right}}, site);
  if (lanes[0].words[0] != operands.left ||
      lanes[0].words[1] != operands.right) {
    Abandon("divergence in a warp: lanes have different descriptors" +
            WhoRuns());
  }
  const Moment now = Now();
  Products& products = ProductsOf(now.thread);
  ++products.count;
  any_products = true;
  if (products.pending.count(sums) == 0) {
    if (!products.fenced) {
      Abandon("wgmma.fence is missing before a product" + WhoRuns());
    }
    std::memcpy(products.values[sums].data(), sums,
                sizeof(float[kWarpgroupSums]));
    Poison(sums);
  }
  ++products.pending[sums];
  ForOwnUnits(operands, [&](const char* unit) {
    AbandonIf(BeginAsyncRead(unit, kUnitBytes, now));
  });
  products.open.push_back({operands, add, sums});
}

void WarpgroupCommit(Site site) {
  ExchangeInWarp(~0u, {}, site);
  Products& products = ProductsOf(Now().thread);
  products.groups.push_back(std::move(products.open));
  products.open.clear();
}

void WarpgroupWait(int pending, Site site) {
  ExchangeInWarp(~0u, {}, site);
  Products& products = ProductsOf(Now().thread);
  while (products.groups.size() > static_cast<size_t>(pending)) {
    const std::vector<Product> group = std::move(products.groups.front());
    products.groups.pop_front();
    Finish(products, group);
  }
  products.fenced = false;  // other code may use the sums from now on
}

void ForgetProducts() {
  if (!any_products) return;
  any_products = false;
  for (uint32_t thread = 0; thread < kMaxThreads; ++thread) {
    ProductsOf(thread) = {};
  }
}

std::string UnfinishedProducts(int threads) {
  if (!any_products) return "";
  for (int thread = 0; thread < threads; ++thread) {
    const Products& products = ProductsOf(thread);
    if (!products.pending.empty()) {
      return "never waited for: wgmma products of thread " +
             std::to_string(thread) + " at the end of a block";
    }
    const int first = thread / kWarpgroup * kWarpgroup;
    if (products.count != ProductsOf(first).count) {
      return "divergence in a warpgroup: threads " + std::to_string(first) +
             " and " + std::to_string(thread) +
             " have made unequal numbers of wgmma products";
    }
  }
  return "";
}

}  // namespace bk::emulator
