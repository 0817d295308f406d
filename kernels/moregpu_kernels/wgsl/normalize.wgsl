//! name = "normalize"
//! summary = "layernorm and rmsnorm along rows: two passes over values that may stay in registers; optional weight and bias"
//! bindings = [
//!   "a: read tensor", "out: write tensor if not wide", "out: write tensor//float32 if wide",
//!   "weight: read tensor if weight", "bias: read tensor if bias",
//! ]
//! uniforms = ["rows: u32", "columns: u32", "epsilon: f32"]
//! [options]
//! vector = 4
//! size = 256
//! lanes = 256
//! held = 0
//! subgroup = 0
//! centred = true
//! weight = false
//! bias = false
//! wide = false
#include number
#include row
fn affine(value: {{T}}, i: u32) -> {{T}} {
  var y = value;
#if weight
  y = y * load_weight(i);
#endif
#if bias
  y = y + load_bias(i);
#endif
  return y;
}

// (x - mean) / spread, where every size was multiplied by `scale`; `top` is the row's largest size, as bits.
fn normal(x: {{T}}, i: u32, scale: f32, mean: f32, spread: f32, top: u32) -> {{T}} {
  var y = (x * scale - mean) / spread;
#if centred
  // An infinity makes mean and spread NaN or infinite, and NumPy's whole row NaN.
  y = select(y, {{T}}(u.nan), top >= 0x7f800000u);
#else
  // x / inf: 0 for the finite, NaN for the infinite.
  y = select(y, select({{T}}(0.0), {{T}}(u.nan), is_inf(x)), top == 0x7f800000u);
  y = select(y, {{T}}(u.nan), top > 0x7f800000u);
#endif
  return affine(y, i);
}

#entry size
  let row = group * {{size // lanes}}u + lane / {{lanes}}u;
  let count = select(0u, u.columns / {{vector}}u, row < u.rows);
  let start = row * (u.columns / {{vector}}u);
  let first = lane & {{lanes - 1}}u;

  // The largest size, as bits: 0x7f800000 and above are inf and NaN.
  var top = 0u;
#if held > 0
#for h in 0..held
  var v_{{h}} = {{T}}(0.0);
  if first + {{h * lanes}}u < count { v_{{h}} = load_a(start + first + {{h * lanes}}u); }
  top = max(top, across_size(v_{{h}}));
#endfor
#else
  for (var i = first; i < count; i += {{lanes}}u) { top = max(top, across_size(load_a(start + i))); }
#endif
  top = row_max(top, lane);
  // Above 2^50 squares could overflow: work on 2^-80 of everything (opaque: not on 2^-80 of the sum).
  let is_huge = top >= 0x58800000u;
  let scale = select(1.0, 8.271806125530277e-25, is_huge);
  let epsilon = select(u.epsilon, 0.0, is_huge);

  var mean = 0.0;
#if centred
  var sum = 0.0;
#if held > 0
#for h in 0..held
  sum += across_sum(opaque(v_{{h}} * scale));
#endfor
#else
  for (var i = first; i < count; i += {{lanes}}u) { sum += across_sum(opaque(load_a(start + i) * scale)); }
#endif
  mean = row_sum(sum, lane) / f32(u.columns);
#endif

  var squares = 0.0;
#if held > 0
#for h in 0..held
  if first + {{h * lanes}}u < count {
    let d = v_{{h}} * scale - mean;
    squares += across_sum(d * d);
  }
#endfor
#else
  for (var i = first; i < count; i += {{lanes}}u) {
    let d = load_a(start + i) * scale - mean;
    squares += across_sum(d * d);
  }
#endif
  let spread = sqrt(row_sum(squares, lane) / f32(u.columns) + epsilon);
#if held > 0
#for h in 0..held
  if first + {{h * lanes}}u < count {
    let i = first + {{h * lanes}}u;
    store_out(start + i, normal(v_{{h}}, i, scale, mean, spread, top));
  }
#endfor
#else
  for (var i = first; i < count; i += {{lanes}}u) {
    store_out(start + i, normal(load_a(start + i), i, scale, mean, spread, top));
  }
#endif
}
