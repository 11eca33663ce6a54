/** What is laid over a map: a value in the place of the one below, or null for none. */
export type Layer<K, V> = ReadonlyMap<K, V | null>;

/** Changes over which looking up stays as quick as in one map, beside a sixteenth of what is below. */
const FEW = 1024;

/**
 * A map that shares with an earlier one what did not change (copy-on-write): few changes, laid
 * over a map of many that is never written to again.
 */
export class LayeredMap<K, V extends object | string | number> implements ReadonlyMap<K, V> {
  readonly #base: ReadonlyMap<K, V>;
  readonly #layer: Layer<K, V>;

  constructor(base: ReadonlyMap<K, V>, layer: Layer<K, V>) {
    this.#base = base;
    this.#layer = layer;
  }

  /** `map` with changes made; undefined if so many have gathered that it is better made anew. */
  static over<K, V extends object | string | number>(
    map: ReadonlyMap<K, V>,
    changes: Layer<K, V>,
  ): ReadonlyMap<K, V> | undefined {
    const isLayered = map instanceof LayeredMap;
    const base: ReadonlyMap<K, V> = isLayered ? map.#base : map;
    const earlier: Layer<K, V> = isLayered ? map.#layer : new Map();
    if (earlier.size + changes.size > FEW + base.size / 16) return undefined;
    return changes.size === 0 ? map : new LayeredMap(base, new Map([...earlier, ...changes]));
  }

  /** The keys under which two maps may differ: few, if one came of the other. */
  static differing<K, V extends object | string | number>(
    one: ReadonlyMap<K, V>,
    other: ReadonlyMap<K, V>,
  ): Iterable<K> {
    if (one === other) return [];
    const [below, above] = [one, other].map((map) =>
      map instanceof LayeredMap ? { base: map.#base, layer: map.#layer } : { base: map },
    );
    if (below?.base !== above?.base) return union(one, other);
    return new Set<K>([...(below?.layer?.keys() ?? []), ...(above?.layer?.keys() ?? [])]);
  }

  get(key: K): V | undefined {
    const changed = this.#layer.get(key);
    return changed === undefined ? this.#base.get(key) : (changed ?? undefined);
  }

  has(key: K): boolean {
    return this.get(key) !== undefined;
  }

  get size(): number {
    let size = this.#base.size;
    for (const [key, value] of this.#layer) {
      size += (value === null ? 0 : 1) - (this.#base.has(key) ? 1 : 0);
    }
    return size;
  }

  *entries(): Generator<[K, V], undefined> {
    for (const entry of this.#base) {
      const changed = this.#layer.get(entry[0]);
      if (changed === undefined) yield entry;
      else if (changed !== null) yield [entry[0], changed];
    }
    for (const [key, value] of this.#layer) {
      if (value !== null && !this.#base.has(key)) yield [key, value];
    }
  }

  *keys(): Generator<K, undefined> {
    for (const [key] of this.entries()) yield key;
  }

  *values(): Generator<V, undefined> {
    for (const [, value] of this.entries()) yield value;
  }

  [Symbol.iterator](): Generator<[K, V], undefined> {
    return this.entries();
  }

  forEach(visit: (value: V, key: K, map: ReadonlyMap<K, V>) => void): void {
    for (const [key, value] of this.entries()) visit(value, key, this);
  }
}

/** The keys of one map, then those of the other that the first one has not. */
function* union<K, V>(one: ReadonlyMap<K, V>, other: ReadonlyMap<K, V>): Generator<K> {
  yield* one.keys();
  for (const key of other.keys()) if (!one.has(key)) yield key;
}
