//! name = "gemv_quantised"
//! summary = "A matrix of blocks of 32 small integers, each with a float16 scale, times a vector (q8_0 and q4_0 of ggml)"
//! source = "https://github.com/ggml-org/ggml, block_q8_0 and block_q4_0; scales and integers lie apart here, aligned"
//! bindings = ["quants: read vec4<u32>", "scales: read u32", "x: read tensor", "y: write tensor/one/float32"]
//! uniforms = ["rows: u32", "blocks: u32", "first_scale: u32"]
//! [options]
//! vector = 4
//! one = 1
//! bits = 8
//! size = 256
//! lanes = 64
//! subgroup = 0
#include row
#if bits == 8
fn part(word: u32) -> vec4<f32> {
  let w = vec4<i32>(i32(word << 24u), i32(word << 16u), i32(word << 8u), i32(word));
  return vec4<f32>(w >> vec4<u32>(24u));
}
#else
fn part(word: u32) -> vec4<f32> {
  let w = (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u);
  return vec4<f32>(w) - 8.0;
}
#endif

#entry size
  let row = group * {{size // lanes}}u + lane / {{lanes}}u;
  let count = select(0u, u.blocks, row < u.rows);
  let start = row * u.blocks;
  let first = lane & {{lanes - 1}}u;
  var sum = 0.0;
  for (var i = first; i < count; i += {{lanes}}u) {
    let at = u.first_scale + start + i;
    let scale = unpack2x16float(scales[at >> 1u])[at & 1u];
    var x = vec4<f32>(0.0);
#if bits == 8
#for half in 0..2
    let q_{{half}} = quants[(start + i) * 2u + {{half}}u];
#for j in 0..4
    x = fma(part(q_{{half}}[{{j}}]), load_x(i * 8u + {{half * 4 + j}}u), x);
#endfor
#endfor
#else
    // Byte j holds element j in its low half and element j + 16 in its high half.
    let q = quants[start + i];
#for j in 0..4
    x = fma(part(q[{{j}}]), load_x(i * 8u + {{j}}u), x);
    x = fma(part(q[{{j}}] >> 4u), load_x(i * 8u + {{j + 4}}u), x);
#endfor
#endif
    sum = fma(across_sum(x), scale, sum);
  }
  sum = row_sum(sum, lane);
  if first == 0u && row < u.rows { store_y(row, sum); }
}
