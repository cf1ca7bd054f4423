/**
 * The values that a texture gives, by the formulas of the CUDA programming guide's appendix on texture fetching:
 * weights are fixed point with 8 bits behind the point, coordinates wrap and mirror where they are normalized.
 */

export type Mode = 'wrap' | 'clamp' | 'mirror' | 'border';

export interface Image {
  readonly size: readonly [number, number, number];
  /** Channels of one texel of a level. */
  readonly texel: (x: number, y: number, z: number, level: number) => readonly number[];
  readonly modes: readonly Mode[];
  readonly linear: boolean;
  readonly normalized: boolean;
  readonly border?: number;
}

/** The texel that an index beyond the edge leads to; undefined: the border. */
export function index(i: number, size: number, mode: Mode): number | undefined {
  if (i >= 0 && i < size) return i;
  switch (mode) {
    case 'wrap':
      return ((i % size) + size) % size;
    case 'mirror': {
      const turn = ((i % (2 * size)) + 2 * size) % (2 * size);
      return turn < size ? turn : 2 * size - 1 - turn;
    }
    case 'clamp':
      return i < 0 ? 0 : size - 1;
    case 'border':
      return undefined;
  }
}

/** frac(x) and its mirror image, then texels. */
function texels(x: number, size: number, mode: Mode, normalized: boolean): number {
  if (!normalized) return x;
  const part = x - Math.floor(x);
  if (mode === 'wrap') return Math.fround(Math.fround(part) * size);
  if (mode === 'mirror') return (Math.floor(x) % 2 === 0 ? part : 1 - part) * size;
  return Math.fround(x * size);
}

const modeOf = (image: Image, axis: number): Mode => {
  const mode = image.modes[axis] ?? 'clamp';
  return !image.normalized && (mode === 'wrap' || mode === 'mirror') ? 'clamp' : mode;
};

export function sample(image: Image, at: readonly number[], layer = 0, level = 0): number[] {
  const size = image.size.map((n, axis) => (axis < at.length ? Math.max(1, n >> level) : n));
  const places = at.map((x, axis) => texels(x, size[axis] ?? 1, modeOf(image, axis), image.normalized));
  const fetch = (indices: readonly number[]): readonly number[] => {
    const found = indices.map((i, axis) => index(i, size[axis] ?? 1, modeOf(image, axis)));
    if (found.includes(undefined)) return Array.from({ length: 4 }, () => image.border ?? 0);
    const [x = 0, y = 0, z = 0] = found;
    return image.texel(x, y, at.length === 3 ? z : layer, level);
  };
  if (!image.linear) return [...fetch(places.map(Math.floor))];
  const taps = places.map((place) => {
    const fixed = Math.floor((place - 0.5) * 256 + 0.5);
    return { first: Math.floor(fixed / 256), weight: (fixed - Math.floor(fixed / 256) * 256) / 256 };
  });
  const sum = [0, 0, 0, 0];
  for (let corner = 0; corner < 1 << at.length; corner++) {
    const bits = taps.map((_, axis) => (corner >> axis) & 1);
    const weight = taps.reduce((w, tap, axis) => w * (bits[axis] === 1 ? tap.weight : 1 - tap.weight), 1);
    const texel = fetch(taps.map((tap, axis) => tap.first + (bits[axis] ?? 0)));
    texel.forEach((value, channel) => {
      sum[channel] = (sum[channel] ?? 0) + weight * value;
    });
  }
  return sum;
}

/** The table of the guide: face and the two coordinates within it. */
export function cubeFace(x: number, y: number, z: number): { face: number; s: number; t: number } {
  const [ax, ay, az] = [Math.abs(x), Math.abs(y), Math.abs(z)];
  const place = (face: number, s: number, t: number, m: number): { face: number; s: number; t: number } => ({
    face,
    s: (s / m + 1) / 2,
    t: (t / m + 1) / 2,
  });
  if (ax >= ay && ax >= az) return x >= 0 ? place(0, -z, -y, ax) : place(1, z, -y, ax);
  if (ay >= az) return y >= 0 ? place(2, x, z, ay) : place(3, x, -z, ay);
  return z >= 0 ? place(4, x, -y, az) : place(5, -x, -y, az);
}
