import type { ByteText } from "./lexical.ts";

/** Most objects have no more keys, for which comparing is faster than a set. */
const FEW = 16;

/** The keys of one object. */
export class ObjectKeys {
  #few: ByteText[] = [];
  #all: Set<string> | undefined = undefined;

  clear(): void {
    this.#few = [];
    this.#all = undefined;
  }

  /** False if the object has the key already. */
  add(key: ByteText): boolean {
    if (this.#all === undefined) {
      for (const other of this.#few) if (key.equals(other)) return false;
      if (this.#few.push(key) > FEW) this.#all = new Set(this.#few.map(String));
      return true;
    }
    const { size } = this.#all;
    return this.#all.add(key.toString()).size > size;
  }
}
