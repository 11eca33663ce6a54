/**
 * Memoizes a function of a text, for up to `size` texts: what comes with every request is looked at
 * once.
 */
export function memoize<Result extends object | string | boolean>(
  compute: (text: string) => Result,
  size = 1024,
): (text: string) => Result {
  const known = new Map<string, Result>();
  return (text) => {
    const remembered = known.get(text);
    if (remembered !== undefined) return remembered;
    // Whoever sends ever new texts makes no more than a full map.
    if (known.size >= size) known.clear();
    const result = compute(text);
    known.set(text, result);
    return result;
  };
}

/** Memoizes the answer for the last argument, for what is asked about the same one again and again. */
export function memoizeLast<Key, Answer>(make: (key: Key) => Answer): (key: Key) => Answer {
  let last: { readonly key: Key; readonly answer: Answer } | undefined;
  return (key) => {
    if (last?.key !== key) last = { key, answer: make(key) };
    return last.answer;
  };
}
