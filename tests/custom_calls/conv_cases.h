// Shapes of convolutions that kernels find hard, and the truth about their
// gradients.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_CONV_CASES_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_CONV_CASES_H_

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "custom_calls/reference/conv_grad.h"
#include "custom_calls/shapes.h"
#include "tests/custom_calls/test_data.h"

namespace bk {

using reference::Volume;

// A convolution of images [h, w] by [kh, kw]; the rest is 1 until changed.
inline ConvShape Conv2d(int64_t h, int64_t w, int64_t kh, int64_t kw,
                        int64_t cin, int64_t cout) {
  return {2,
          1,
          {1, h, w},
          {1, h, w},
          {1, kh, kw},
          {1, 1, 1},
          {0, kh / 2, kw / 2},
          {1, 1, 1},
          {1, 1, 1},
          1,
          cin,
          cout};
}

inline std::vector<ConvShape> OddShapes() {
  std::vector<ConvShape> shapes = {
      Conv2d(5, 6, 3, 3, 3, 5),    Conv2d(1, 1, 1, 1, 1, 1),
      Conv2d(4, 300, 1, 5, 2, 17), Conv2d(9, 9, 3, 3, 40, 70),
      Conv2d(7, 7, 1, 1, 300, 9),  Conv2d(6, 5, 7, 20, 2, 3),
      Conv2d(0, 5, 3, 3, 2, 2),    Conv2d(5, 5, 3, 3, 0, 2),
      Conv2d(3, 3, 3, 3, 2, 0),
  };
  ConvShape strided = Conv2d(11, 13, 3, 3, 9, 8);
  strided.stride[1] = 2, strided.stride[2] = 3;
  strided.out[1] = 6, strided.out[2] = 5;
  shapes.push_back(strided);
  ConvShape dilated = Conv2d(9, 10, 3, 2, 5, 6);
  dilated.dilation[1] = 3, dilated.dilation[2] = 4;
  dilated.out[1] = 5, dilated.out[2] = 8;
  shapes.push_back(dilated);
  ConvShape transposed = Conv2d(4, 5, 3, 3, 5, 6);  // zeros between pixels
  transposed.input_dilation[1] = 2, transposed.input_dilation[2] = 3;
  transposed.out[1] = 8, transposed.out[2] = 14;
  shapes.push_back(transposed);
  ConvShape cropped = Conv2d(9, 9, 3, 3, 4, 4);  // negative padding
  cropped.low[1] = -2, cropped.low[2] = -1;
  cropped.out[1] = 4, cropped.out[2] = 5;
  shapes.push_back(cropped);
  ConvShape grouped = Conv2d(6, 6, 3, 3, 3, 5);
  grouped.groups = 4;
  shapes.push_back(grouped);
  ConvShape depthwise = Conv2d(6, 6, 3, 3, 1, 1);
  depthwise.groups = 9, depthwise.images = 3;
  shapes.push_back(depthwise);
  ConvShape wide = Conv2d(9, 30, 3, 5, 1, 1);  // whole and partial vectors
  wide.groups = 70;
  wide.stride[1] = 2, wide.stride[2] = 3;
  wide.out[1] = 5, wide.out[2] = 10;
  shapes.push_back(wide);
  ConvShape long_line = Conv2d(2, 300, 1, 3, 1, 1);  // blocks of its pixels
  long_line.groups = 2;
  shapes.push_back(long_line);
  ConvShape spread = Conv2d(4, 5, 3, 3, 1, 1);  // depthwise and transposed
  spread.groups = 16, spread.input_dilation[2] = 2, spread.dilation[1] = 2;
  spread.out[2] = 9;
  shapes.push_back(spread);
  ConvShape long_kernel = Conv2d(3, 40, 2, 200, 1, 1);
  long_kernel.groups = 5;
  shapes.push_back(long_kernel);
  ConvShape solid = Conv2d(5, 4, 2, 3, 3, 4);  // three dimensions
  solid.in[0] = 4, solid.out[0] = 2, solid.kernel[0] = 3, solid.low[0] = 1;
  solid.stride[0] = 2;
  shapes.push_back(solid);
  ConvShape far = Conv2d(1, 700, 1, 3, 2, 2);  // offsets in blocks of their own
  far.dilation[2] = 300, far.low[2] = 300;
  shapes.push_back(far);
  return shapes;
}

// Elements of one example, and of the kernel.
inline int64_t ImageElements(const ConvShape& s) {
  return s.images * Volume(s.in) * s.groups * s.cin;
}
inline int64_t GradientElements(const ConvShape& s) {
  return s.images * Volume(s.out) * s.groups * s.cout;
}
inline int64_t KernelElements(const ConvShape& s) {
  return Volume(s.kernel) * s.cin * s.groups * s.cout;
}

// The gradient of the kernel for one example.
template <class T>
std::vector<long double> ExactGrad(const ConvShape& s, const T* x, const T* g) {
  std::vector<long double> out(KernelElements(s));
  reference::ConvGrad<long double>(s, x, g, 1, out.data());
  return out;
}

inline long double Squares(const std::vector<long double>& values) {
  long double total = 0;
  for (long double x : values) total += x * x;
  return total;
}

// BK_JAX_STRESS_CASES=1000000 for the long run.
inline int64_t StressCases() {
  const char* cases = std::getenv("BK_JAX_STRESS_CASES");
  return cases != nullptr ? std::atoll(cases) : 20000;
}

// Random magnitudes; in every other case pixels of which neighbours nearly
// cancel.
inline void FillHard(Random& random, int64_t repeat, int64_t cout,
                     Array<float>* x, Array<float>* g) {
  std::uniform_real_distribution<double> exponent(-30, 12);
  *x = Normals<float>(random, x->size(), std::pow(10, exponent(random)));
  *g = Normals<float>(random, g->size(), std::pow(10, exponent(random)));
  if (repeat % 2 != 0) return;
  for (int64_t k = 0; k < x->size(); ++k) {
    (*x)[k] = (*x)[0] * (1 + 1e-6F * static_cast<float>(k));
  }
  for (int64_t k = cout; k < g->size(); ++k) (*g)[k] = -(*g)[k - cout];
}

}  // namespace bk

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_CONV_CASES_H_
