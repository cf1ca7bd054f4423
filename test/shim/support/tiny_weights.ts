/**
 * The weights of a tiny llama model that can do one thing: go on with what it has read. It is a toy, put together
 * by arithmetic and not trained. The last layer looks for where the present token stood before, and says what came
 * next there; for that, the layer before has told each place what stood before it ("induction"). It may also have
 * learnt sentences by heart: each of their tokens then calls for the next.
 *
 * So the likeliest token is far ahead of the others, which random weights do not give: there, the order of two
 * additions decides. All the same every weight counts: what has no part in the above is noise that reaches the
 * result, and all is turned by a random rotation, so that no weight is zero.
 *
 * The stream between layers has these places, before the rotation: the token's own code, that of the token before,
 * that of the token foretold, a constant, and noise. Codes are +1 and -1 at random.
 */

export const WIDTH = 256;
export const INNER = 512;
export const HEADS = 4;
export const KEY_HEADS = 2;
export const VOCABULARY = 256;
export const LAYERS = 2;
/** Of the rotary embedding. Only the first twelve pairs of a head turn by more than half a radian in 512 places. */
export const FREQUENCY_BASE = 1e8;

const HEAD = WIDTH / HEADS;
const CODE = 96;
/** How much of the code the layer before passes on, and where in a head slow pairs begin. */
const PART = 40;
const SLOW = HEAD - PART;
const OWN = 0;
const FORETOLD = CODE;
const BEFORE = 2 * CODE;
const CONSTANT = BEFORE + PART;

/** Rows of numbers, one after another. */
interface Matrix {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float64Array;
}

export interface Weights {
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
  readonly values: Float32Array;
}

/** Mulberry32: 32 bits of state, good enough for noise, and the same everywhere. */
function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

function zeros(rows: number, columns: number): Matrix {
  return { rows, columns, values: new Float64Array(rows * columns) };
}

function at(matrix: Matrix, row: number, column: number): number {
  return matrix.values[row * matrix.columns + column] ?? 0;
}

function add(matrix: Matrix, row: number, column: number, value: number): void {
  matrix.values[row * matrix.columns + column] = at(matrix, row, column) + value;
}

/** A times B transposed. */
function timesTransposed(a: Matrix, b: Matrix): Matrix {
  const out = zeros(a.rows, b.rows);
  for (let row = 0; row < a.rows; row++) {
    const left = a.values.subarray(row * a.columns, (row + 1) * a.columns);
    for (let column = 0; column < b.rows; column++) {
      const right = b.values.subarray(column * b.columns, (column + 1) * b.columns);
      let sum = 0;
      for (let i = 0; i < left.length; i++) sum += (left[i] ?? 0) * (right[i] ?? 0);
      out.values[row * b.rows + column] = sum;
    }
  }
  return out;
}

function transposed(matrix: Matrix): Matrix {
  const out = zeros(matrix.columns, matrix.rows);
  for (let row = 0; row < matrix.rows; row++)
    for (let column = 0; column < matrix.columns; column++) add(out, column, row, at(matrix, row, column));
  return out;
}

class Maker {
  readonly #random: () => number;
  readonly #rotation: Matrix;
  /** One row a token. */
  readonly #codes: Matrix;

  constructor(seed: number) {
    this.#random = randomNumbers(seed);
    this.#rotation = this.#orthogonal();
    this.#codes = this.#unlike();
  }

  /** Random codes, none of them too much like another one: nor their first parts, which is all a lookup sees. */
  #unlike(): Matrix {
    const out = zeros(VOCABULARY, CODE);
    const alike = (one: number, other: number, length: number): number => {
      let sum = 0;
      for (let i = 0; i < length; i++) sum += at(out, one, i) * at(out, other, i);
      return Math.abs(sum);
    };
    for (let token = 0; token < VOCABULARY; ) {
      for (let i = 0; i < CODE; i++) out.values[token * CODE + i] = this.#random() < 0.5 ? -1 : 1;
      let other = 0;
      while (other < token && alike(token, other, PART) <= 18 && alike(token, other, CODE) <= 30) other++;
      if (other === token) token++;
    }
    return out;
  }

  /** Four uniform numbers are nearly normal. */
  #noise(rows: number, columns: number, spread: number): Matrix {
    const out = zeros(rows, columns);
    for (let i = 0; i < out.values.length; i++)
      out.values[i] =
        (this.#random() + this.#random() + this.#random() + this.#random() - 2) * Math.sqrt(3) * spread;
    return out;
  }

  /** Random rows, each made orthogonal to those before it. */
  #orthogonal(): Matrix {
    const out = this.#noise(WIDTH, WIDTH, 1);
    const row = (i: number): Float64Array => out.values.subarray(i * WIDTH, (i + 1) * WIDTH);
    const product = (a: Float64Array, b: Float64Array): number =>
      a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0);
    for (let i = 0; i < WIDTH; i++) {
      for (let j = 0; j < i; j++) {
        const part = product(row(i), row(j));
        for (let k = 0; k < WIDTH; k++) add(out, i, k, -part * at(out, j, k));
      }
      const length = Math.sqrt(product(row(i), row(i)));
      for (let k = 0; k < WIDTH; k++) out.values[i * WIDTH + k] = at(out, i, k) / length;
    }
    return out;
  }

  /** Weights that read the stream: rows of what stands where. */
  #reading(name: string, matrix: Matrix): Weights {
    return finished(name, timesTransposed(matrix, this.#rotation));
  }

  /** Weights that write to it: columns of what goes where. */
  #writing(name: string, matrix: Matrix): Weights {
    return finished(name, timesTransposed(this.#rotation, transposed(matrix)));
  }

  embeddings(): Weights {
    const out = zeros(VOCABULARY, WIDTH);
    for (let token = 0; token < VOCABULARY; token++) {
      for (let i = 0; i < CODE; i++) add(out, token, OWN + i, at(this.#codes, token, i));
      add(out, token, CONSTANT, 4);
      for (let i = CONSTANT + 1; i < WIDTH; i++) add(out, token, i, this.#random() * 2 - 1);
    }
    return this.#reading('token_embd.weight', out);
  }

  output(): Weights {
    const out = this.#noise(VOCABULARY, WIDTH, 0.06);
    for (let token = 0; token < VOCABULARY; token++)
      for (let i = 0; i < CODE; i++) add(out, token, FORETOLD + i, 0.1 * at(this.#codes, token, i));
    return this.#reading('output.weight', out);
  }

  /** The first head of keys looks one place back: where rotations differ by one step, all its pairs agree. */
  lookBack(): Weights[] {
    const { query, key, value, out } = this.#attention();
    for (let pair = 0; pair < 5; pair++) {
      const angle = FREQUENCY_BASE ** (-pair / (HEAD / 2));
      add(key, 2 * pair, CONSTANT, 1.7);
      for (const head of [0, 1]) {
        add(query, head * HEAD + 2 * pair, CONSTANT, 1.7 * cosine(angle));
        add(query, head * HEAD + 2 * pair + 1, CONSTANT, -1.7 * cosine(angle - QUARTER));
      }
    }
    for (let i = 0; i < PART; i++) {
      add(value, i, OWN + i, 1);
      for (const head of [0, 1]) add(out, BEFORE + i, head * HEAD + i, 0.5);
    }
    return this.#layer(0, { query, key, value, out });
  }

  /** All heads look for a place before which the present token stood, and pass its code on. */
  lookUp(): Weights[] {
    const { query, key, value, out } = this.#attention();
    for (let head = 0; head < HEADS; head++) {
      for (let i = 0; i < PART; i++) add(query, head * HEAD + SLOW + i, OWN + i, 3);
      const half = Math.floor((head * KEY_HEADS) / HEADS) * (CODE / 2);
      for (let i = 0; i < CODE / 2; i++) add(out, FORETOLD + half + i, head * HEAD + i, 1.5);
    }
    for (let head = 0; head < KEY_HEADS; head++) {
      for (let i = 0; i < PART; i++) add(key, head * HEAD + SLOW + i, BEFORE + i, 3);
      for (let i = 0; i < CODE / 2; i++) add(value, head * HEAD + i, OWN + (head * CODE) / 2 + i, 1);
    }
    return this.#layer(1, { query, key, value, out });
  }

  #attention() {
    const keys = HEAD * KEY_HEADS;
    return {
      query: this.#noise(WIDTH, WIDTH, 0.02),
      key: this.#noise(keys, WIDTH, 0.02),
      value: this.#noise(keys, WIDTH, 0.02),
      out: this.#noise(WIDTH, WIDTH, 0.02),
    };
  }

  #layer(
    layer: number,
    { query, key, value, out }: Record<'query' | 'key' | 'value' | 'out', Matrix>,
  ): Weights[] {
    return [
      this.#reading(`blk.${layer}.attn_q.weight`, query),
      this.#reading(`blk.${layer}.attn_k.weight`, key),
      this.#reading(`blk.${layer}.attn_v.weight`, value),
      this.#writing(`blk.${layer}.attn_output.weight`, out),
    ];
  }

  /** The code of a token at a place of the stream, after the rotation. */
  #turned(place: number, token: number): number[] {
    return Array.from({ length: WIDTH }, (_, row) => {
      let sum = 0;
      for (let i = 0; i < CODE; i++) sum += at(this.#rotation, row, place + i) * at(this.#codes, token, i);
      return sum;
    });
  }

  /** Noise, which turned is noise again; and for each token of `memory` a neuron that it alone wakes, which
   * foretells the next. */
  forward(layer: number, memory: readonly number[]): Weights[] {
    const gate = this.#noise(INNER, WIDTH, 1 / 16);
    const up = this.#noise(INNER, WIDTH, 1 / 16);
    const down = this.#noise(WIDTH, INNER, 1 / 60);
    memory.slice(0, -1).forEach((token, neuron) => {
      const own = this.#turned(OWN, token);
      const next = this.#turned(FORETOLD, memory[neuron + 1] ?? 0);
      for (let i = 0; i < WIDTH; i++) {
        add(gate, neuron, i, 0.2 * (own[i] ?? 0));
        add(up, neuron, i, 0.1 * (own[i] ?? 0));
        add(down, i, neuron, 0.2 * (next[i] ?? 0));
      }
    });
    return [
      finished(`blk.${layer}.ffn_gate.weight`, gate),
      finished(`blk.${layer}.ffn_up.weight`, up),
      finished(`blk.${layer}.ffn_down.weight`, down),
    ];
  }
}

const QUARTER = 1.5707963267948966;

/** By its series: that of the language may differ from machine to machine in the last bit. */
function cosine(angle: number): number {
  let term = 1;
  let sum = 1;
  for (let n = 1; n < 12; n++) {
    term *= -(angle * angle) / (2 * n * (2 * n - 1));
    sum += term;
  }
  return sum;
}

function finished(name: string, { rows, columns, values }: Matrix): Weights {
  return { name, rows, columns, values: Float32Array.from(values) };
}

/** All but the norms, which are ones. `memory`: tokens of sentences learnt by heart, each token once. */
export function tinyWeights(seed: number, memory: readonly number[]): Weights[] {
  const maker = new Maker(seed);
  return [
    maker.embeddings(),
    ...maker.lookBack(),
    ...maker.forward(0, []),
    ...maker.lookUp(),
    ...maker.forward(1, memory),
    maker.output(),
  ];
}
