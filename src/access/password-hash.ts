/** Argon2id costs, named as in RFC 9106. */
export interface HashCosts {
  /** KiB. */
  readonly memory: number;
  /** Passes. */
  readonly time: number;
  /** Lanes. */
  readonly parallelism: number;
}

interface PasswordHash {
  readonly costs: HashCosts;
  readonly salt: Buffer;
  readonly hash: Buffer;
}

export const passwordHashForm =
  /^\$argon2id\$v=19\$([mtp]=[1-9]\d{0,6}(?:,[mtp]=[1-9]\d{0,6}){2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/;

/** Cost limits for hashes in the access file, so that no file can exhaust memory. */
export const costBounds = {
  memory: [8, 1_048_576],
  time: [1, 64],
  parallelism: [1, 64],
} as const;

function within(value: number, [low, high]: readonly [number, number]): boolean {
  return value >= low && value <= high;
}

/**
 * Reads `$argon2id$v=19$m=..,t=..,p=..$salt$hash`, with the parameters in any order. Undefined for
 * other text and for costs out of bounds (RFC 9106 requires 8 KiB per lane).
 */
export function parsePasswordHash(text: string): PasswordHash | undefined {
  const match = passwordHashForm.exec(text);
  if (!match?.[1] || !match[2] || !match[3] || text.length > 512) return undefined;
  const parameters = new Map(
    match[1].split(",").map((pair) => [pair.charAt(0), Number(pair.slice(2))]),
  );
  const memory = parameters.get("m");
  const time = parameters.get("t");
  const parallelism = parameters.get("p");
  if (memory === undefined || time === undefined || parallelism === undefined) return undefined;
  const salt = Buffer.from(match[2], "base64");
  const hash = Buffer.from(match[3], "base64");
  const usable =
    within(memory, costBounds.memory) &&
    within(time, costBounds.time) &&
    within(parallelism, costBounds.parallelism) &&
    memory >= 8 * parallelism &&
    salt.length >= 8 &&
    hash.length >= 12;
  return usable ? { costs: { memory, time, parallelism }, salt, hash } : undefined;
}

function unpadded(bytes: Buffer): string {
  return bytes.toString("base64").replace(/=+$/, "");
}

/** Writes a hash with its parameters in the order m, t, p. */
export function formatPasswordHash({ costs, salt, hash }: PasswordHash): string {
  const parameters = `m=${costs.memory},t=${costs.time},p=${costs.parallelism}`;
  return `$argon2id$v=19$${parameters}$${unpadded(salt)}$${unpadded(hash)}`;
}
