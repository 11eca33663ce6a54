/** Argon2id costs, named as in RFC 9106: KiB, passes and lanes. */
export interface HashCosts {
  readonly memory: number;
  readonly time: number;
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
  const cost = (letter: string, [low, high]: readonly [number, number]) => {
    const value = parameters.get(letter) ?? 0;
    return value >= low && value <= high ? value : Number.NaN;
  };
  const memory = cost("m", costBounds.memory);
  const time = cost("t", costBounds.time);
  const parallelism = cost("p", costBounds.parallelism);
  const salt = Buffer.from(match[2], "base64");
  const hash = Buffer.from(match[3], "base64");
  const usable = memory >= 8 * parallelism && time > 0 && salt.length >= 8 && hash.length >= 12;
  return usable ? { costs: { memory, time, parallelism }, salt, hash } : undefined;
}

function unpadded(bytes: Buffer): string {
  return bytes.toString("base64").replace(/=+$/, "");
}

export function formatPasswordHash({ costs, salt, hash }: PasswordHash): string {
  const parameters = `m=${costs.memory},t=${costs.time},p=${costs.parallelism}`;
  return `$argon2id$v=19$${parameters}$${unpadded(salt)}$${unpadded(hash)}`;
}
