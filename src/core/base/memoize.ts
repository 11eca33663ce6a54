/**
 * Memoizes a function of a text for up to `size` texts, such as those that recur with every
 * request.
 */
export function memoize<Result extends object | string | boolean>(
  compute: (text: string) => Result,
  size = 1024,
): (text: string) => Result {
  const known = new Map<string, Result>();
  return (text) => {
    const remembered = known.get(text);
    if (remembered !== undefined) return remembered;
    // Limits the memory that a client can use by sending ever new texts.
    if (known.size >= size) known.clear();
    const result = compute(text);
    known.set(text, result);
    return result;
  };
}

/** Memoizes a function of an object, for as long as the object exists. */
export function memoizeByObject<Key extends object, Result extends object | string>(
  compute: (key: Key) => Result,
): (key: Key) => Result {
  const known = new WeakMap<Key, Result>();
  return (key) => {
    const remembered = known.get(key);
    if (remembered !== undefined) return remembered;
    const result = compute(key);
    known.set(key, result);
    return result;
  };
}

/** Memoizes only the last argument, for repeated calls with the same one. */
export function memoizeLast<Key, Answer>(make: (key: Key) => Answer): (key: Key) => Answer {
  let last: { readonly key: Key; readonly answer: Answer } | undefined;
  return (key) => {
    if (last?.key !== key) last = { key, answer: make(key) };
    return last.answer;
  };
}

/** Makes a value when it is first needed, and again if that has failed. */
export function lazily<Value>(make: () => Promise<Value>): () => Promise<Value> {
  let value: Promise<Value> | undefined;
  return () => {
    value ??= make().catch((error: unknown) => {
      value = undefined;
      throw error;
    });
    return value;
  };
}
