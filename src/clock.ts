/** The time as tokens, keys and revocations count it: epoch seconds (RFC 7519, NumericDate). */
export function epochSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
