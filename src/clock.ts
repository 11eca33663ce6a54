/** The time as tokens, keys and revocations count it: epoch seconds (RFC 7519, NumericDate). */
export function epochSeconds(): number {
  return Math.floor(Date.now() / 1000);
}

let lastTime = 0;
let lastText = "";

/** The time as log and audit write it: ISO 8601 in UTC with milliseconds. */
export function isoTime(): string {
  const now = Date.now();
  if (now !== lastTime) {
    lastTime = now;
    lastText = new Date(now).toISOString();
  }
  return lastText;
}
