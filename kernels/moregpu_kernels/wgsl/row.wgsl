// A row is shared by `lanes` neighbouring invocations (a power of two); a workgroup of `size` holds size / lanes rows.
#if lanes > 1
var<workgroup> floats: array<f32, {{size}}>;
var<workgroup> words: array<u32, {{size}}>;
#endif

// The sum over a row's lanes, the same for each, in a fixed tree.
fn row_sum(value: f32, lane: u32) -> f32 {
  var v = value;
#if subgroup > 1
  for (var step = 1u; step < min({{subgroup}}u, {{lanes}}u); step <<= 1u) { v += subgroupShuffleXor(v, step); }
#endif
#if lanes > subgroup and lanes > 1
  workgroupBarrier();
  floats[lane] = v;
  for (var step = {{lanes // 2}}u; step >= max({{subgroup}}u, 1u); step >>= 1u) {
    workgroupBarrier();
    if (lane & {{lanes - 1}}u) < step { floats[lane] += floats[lane + step]; }
  }
  workgroupBarrier();
  v = floats[lane & ~{{lanes - 1}}u];
#endif
  return v;
}

// The largest word over a row's lanes.
fn row_max(value: u32, lane: u32) -> u32 {
  var v = value;
#if subgroup > 1
  for (var step = 1u; step < min({{subgroup}}u, {{lanes}}u); step <<= 1u) { v = max(v, subgroupShuffleXor(v, step)); }
#endif
#if lanes > subgroup and lanes > 1
  workgroupBarrier();
  words[lane] = v;
  for (var step = {{lanes // 2}}u; step >= max({{subgroup}}u, 1u); step >>= 1u) {
    workgroupBarrier();
    if (lane & {{lanes - 1}}u) < step { words[lane] = max(words[lane], words[lane + step]); }
  }
  workgroupBarrier();
  v = words[lane & ~{{lanes - 1}}u];
#endif
  return v;
}

// Floats as words in the same order, NaN above all: comparing words is exact whatever a driver does with NaN.
fn ordered(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let key = select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
  return select(key, 0xffffffffu, (bits & 0x7fffffffu) > 0x7f800000u);
}
fn from_ordered(key: u32) -> f32 {
  let bits = select(~key, key & 0x7fffffffu, (key >> 31u) == 1u);
  return select(bitcast<f32>(bits), u.nan, key == 0xffffffffu);
}

#if vector == 4
fn across_sum(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }
fn across_ordered(v: vec4<f32>) -> u32 {
  return max(max(ordered(v.x), ordered(v.y)), max(ordered(v.z), ordered(v.w)));
}
fn across_size(v: vec4<f32>) -> u32 {
  let b = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
  return max(max(b.x, b.y), max(b.z, b.w));
}
#else
fn across_sum(v: f32) -> f32 { return v; }
fn across_ordered(v: f32) -> u32 { return ordered(v); }
fn across_size(v: f32) -> u32 { return bitcast<u32>(v) & 0x7fffffffu; }
#endif
