import type { PresentValue } from "./scope.ts";

/** The bytes of base64 text (RFC 4648, section 4, with padding); undefined for anything else. */
export function decodeBase64(value: PresentValue): Buffer | undefined {
  if (typeof value !== "string") return undefined;
  const decoded = Buffer.from(value, "base64");
  return decoded.toString("base64") === value ? decoded : undefined;
}
