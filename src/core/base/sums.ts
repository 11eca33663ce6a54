const MOST_ZEROS = 1024;

/**
 * Sums by name, such as what each user holds. Names whose sum is zero are kept up to a number. To
 * delete and add one in each request would make V8 rebuild the map's table again and again, and old
 * tables keep each other alive until the whole heap is collected.
 */
export class Sums {
  readonly #byName = new Map<string, number>();

  of(name: string): number {
    return this.#byName.get(name) ?? 0;
  }

  add(name: string, amount: number): void {
    const sum = this.of(name) + amount;
    if (sum !== 0 || this.#byName.size < MOST_ZEROS) this.#byName.set(name, sum);
    else this.#byName.delete(name);
  }
}

/** The lowest of the numbers that are set, however many there are. */
export function lowest(numbers: readonly (number | undefined)[]): number | undefined {
  const set = numbers.filter((one) => one !== undefined);
  return set.length === 0 ? undefined : set.reduce((least, one) => Math.min(least, one));
}
