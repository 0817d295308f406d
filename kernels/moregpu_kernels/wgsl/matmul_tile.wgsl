//! name = "matmul_tile"
//! summary = "C = A·B on tiles in workgroup memory; an invocation keeps rows × columns of C in registers"
//! source = "V. Volkov, J. Demmel, Benchmarking GPUs to tune dense linear algebra, SC 2008: register blocking"
//! bindings = [
//!   "a: read tensor/vector_k", "b: read tensor/vector_n", "c: write tensor/vector_n/float32 if wide and not accumulate",
//!   "c: read_write tensor/vector_n/float32 if accumulate", "c: write tensor/vector_n if not wide and not accumulate",
//!   "bias: read tensor/vector_n if bias", "residual: read tensor/vector_n if residual",
//! ]
//! uniforms = ["m: u32", "n: u32", "k: u32", "k_first: u32", "k_last: u32", "k_chunk: u32", "tiles_m: u32", "tiles_n: u32"]
//! [options]
//! tile_m = 64
//! tile_n = 64
//! tile_k = 16
//! rows = 8
//! columns = 8
//! vector_k = 4
//! vector_n = 4
//! vector = 4
//! shared = true
//! lanes = 0
//! blocked = true
//! splits = false
//! accumulate = false
//! whole = false
//! wide = false
//! bias = false
//! residual = false
//! epilogue = ""
#include number
// Four neighbours at a time. What lies beyond M and N may be anything: it is computed and never stored, and a read beyond
// the end of a buffer gives some other value of it (WebGPU's promise). Beyond K it must be zero: `whole` says that K is a
// multiple of what a step takes, so that nothing lies there.
fn a4(row: u32, k: u32, k_end: u32) -> vec4<f32> {
#if whole
  return quad_a(row * u.k + k, 4u);
#else
  if k >= k_end { return vec4<f32>(0.0); }
  return quad_a(row * u.k + k, k_end - k);
#endif
}
// B is bound from its row k_first on.
fn b4(k: u32, column: u32, k_end: u32) -> vec4<f32> {
#if not whole
  if k >= k_end { return vec4<f32>(0.0); }
#endif
  return quad_b((k - u.k_first) * u.n + column, 4u);
}
#if accumulate
fn c4(row: u32, column: u32) -> vec4<f32> {
  if row >= u.m || column >= u.n { return vec4<f32>(0.0); }
  return quad_c(row * u.n + column, u.n - column);
}
#endif

fn finish(row: u32, column: u32, sum: vec4<f32>, split: u32) {
  if row >= u.m || column >= u.n { return; }
  let left = u.n - column;
  let at = row * u.n + column;
  var x = sum;
{{epilogue}}
#if splits
  put_quad_c(split * u.m * u.n + at, left, x);
#else
  put_quad_c(at, left, x);
#endif
}

#if shared
// A row of the tile is one vector longer than it needs: neighbouring rows fall into different banks.
var<workgroup> tile_a: array<vec4<f32>, {{tile_m * (tile_k // 4 + 1)}}>;
var<workgroup> tile_b: array<vec4<f32>, {{tile_k * tile_n // 4}}>;
#endif

// With `lanes` all invocations have the same rows: each loads one of them, and every subgroup (of at least that many)
// passes its own round. A load on a software adapter is a loop over invocations, whether they read one place or many.
#if lanes
#entry (tile_m // rows) * (tile_n // columns) with peer
#else
#entry (tile_m // rows) * (tile_n // columns)
#endif
#if splits
  let split = group / (u.tiles_m * u.tiles_n);
  let tile = group % (u.tiles_m * u.tiles_n);
  let k_begin = u.k_first + split * u.k_chunk;
  let k_end = min(u.k_last, k_begin + u.k_chunk);
#else
  let split = 0u;
  let tile = group;
  let k_begin = u.k_first;
  let k_end = u.k_last;
#endif
  // Bands of eight tile rows: neighbouring groups share columns of B while they are in the cache.
  let band = tile / (8u * u.tiles_n);
  let band_rows = min(8u, u.tiles_m - band * 8u);
  let within = tile - band * 8u * u.tiles_n;
  let row_0 = (band * 8u + within % band_rows) * {{tile_m}}u + lane / {{tile_n // columns}}u;
  let column_0 = (within / band_rows) * {{tile_n}}u + (lane % {{tile_n // columns}}u) * 4u;
  let lane_m = lane / {{tile_n // columns}}u;
  let lane_n = lane % {{tile_n // columns}}u;

#if blocked
  // K is summed in blocks of 256 (x) into a second accumulator (s): the error bound relies on it.
#for r in 0..rows
#for c in 0..columns // 4
#if accumulate
  var s_{{r}}_{{c}} = c4(row_0 + {{r * (tile_m // rows)}}u, column_0 + {{c * (tile_n // columns) * 4}}u);
#else
  var s_{{r}}_{{c}} = vec4<f32>(0.0);
#endif
#endfor
#endfor
  for (var block = k_begin; block < k_end; block += 256u) {
    let block_end = min(k_end, block + 256u);
#else
    let block = k_begin;
    let block_end = k_end;
#endif
#for r in 0..rows
#for c in 0..columns // 4
    var x_{{r}}_{{c}} = vec4<f32>(0.0);
#endfor
#endfor
#if shared
    for (var k_0 = block; k_0 < block_end; k_0 += {{tile_k}}u) {
      for (var at = lane; at < {{tile_m * (tile_k // 4)}}u; at += {{(tile_m // rows) * (tile_n // columns)}}u) {
        let row = at / {{tile_k // 4}}u;
        let column = at % {{tile_k // 4}}u;
        tile_a[row * {{tile_k // 4 + 1}}u + column] = a4(row_0 - lane_m + row, k_0 + column * 4u, block_end);
      }
      for (var at = lane; at < {{tile_k * tile_n // 4}}u; at += {{(tile_m // rows) * (tile_n // columns)}}u) {
        let column = column_0 - lane_n * 4u + (at % {{tile_n // 4}}u) * 4u;
        tile_b[at] = b4(k_0 + at / {{tile_n // 4}}u, column, block_end);
      }
      workgroupBarrier();
      for (var k_4 = 0u; k_4 < {{tile_k // 4}}u; k_4 += 1u) {
#for r in 0..rows
        let a_{{r}} = tile_a[({{r * (tile_m // rows)}}u + lane_m) * {{tile_k // 4 + 1}}u + k_4];
#endfor
#for j in 0..4
        {
#for c in 0..columns // 4
          let b_{{c}} = tile_b[(k_4 * 4u + {{j}}u) * {{tile_n // 4}}u + {{c * (tile_n // columns)}}u + lane_n];
#endfor
#for r in 0..rows
#for c in 0..columns // 4
          x_{{r}}_{{c}} = fma(vec4<f32>(a_{{r}}[{{j}}]), b_{{c}}, x_{{r}}_{{c}});
#endfor
#endfor
        }
#endfor
      }
      workgroupBarrier();
    }
#else
    for (var k_0 = block; k_0 < block_end; k_0 += 4u) {
#if lanes
#for q in 0..rows // lanes
      let mine_{{q}} = a4(row_0 + {{q * lanes}}u + peer % {{lanes}}u, k_0, block_end);
#endfor
      // All loads first: between them registers hold little else, and a sum stays in one for four terms.
#for j in 0..4
#for c in 0..columns // 4
      let b_{{j}}_{{c}} = b4(k_0 + {{j}}u, column_0 + {{c * (tile_n // columns) * 4}}u, block_end);
#endfor
#endfor
#for r in 0..rows
#for j in 0..4
      let a_{{r}}_{{j}} = vec4<f32>(subgroupBroadcast(mine_{{r // lanes}}[{{j}}], {{r % lanes}}u));
#for c in 0..columns // 4
      x_{{r}}_{{c}} = fma(a_{{r}}_{{j}}, b_{{j}}_{{c}}, x_{{r}}_{{c}});
#endfor
#endfor
#endfor
#else
#for r in 0..rows
      let a_{{r}} = a4(row_0 + {{r * (tile_m // rows)}}u, k_0, block_end);
#endfor
#for j in 0..4
      {
#for c in 0..columns // 4
        let b_{{c}} = b4(k_0 + {{j}}u, column_0 + {{c * (tile_n // columns) * 4}}u, block_end);
#endfor
#for r in 0..rows
#for c in 0..columns // 4
        x_{{r}}_{{c}} = fma(vec4<f32>(a_{{r}}[{{j}}]), b_{{c}}, x_{{r}}_{{c}});
#endfor
#endfor
      }
#endfor
#endif
    }
#endif
#if blocked
#for r in 0..rows
#for c in 0..columns // 4
    s_{{r}}_{{c}} += x_{{r}}_{{c}};
#endfor
#endfor
  }
#endif
#for r in 0..rows
#for c in 0..columns // 4
#if blocked
  finish(row_0 + {{r * (tile_m // rows)}}u, column_0 + {{c * (tile_n // columns) * 4}}u, s_{{r}}_{{c}}, split);
#else
  finish(row_0 + {{r * (tile_m // rows)}}u, column_0 + {{c * (tile_n // columns) * 4}}u, x_{{r}}_{{c}}, split);
#endif
#endfor
#endfor
}
