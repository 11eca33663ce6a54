import { SignJWT } from "jose/jwt/sign";
import * as z from "zod";
import { epochSeconds } from "../../core/base/clock.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { verifyPinned } from "../../core/identity/jwt-verification.ts";
import type { LiveKeyRing } from "../../core/identity/key-store.ts";
import { permissionClasses } from "../../core/query/permissions.ts";
import type { Handle } from "./preset.ts";

/** So that no handle is a token, and no token is a handle. */
const TYPE = "handle+jwt";
const AUDIENCE = "gatehouse-handle";
/** Longer than any upstream keeps a scroll, a point in time or a checkpoint. */
const LIFETIME_SECONDS = 7 * 24 * 3600;
/** OpenSearch lists every shard in its scrolls and points in time. */
const LONGEST = 4 * 1024 * 1024;

const handleShape = z.object({
  value: z.string(),
  accesses: z.array(
    z.object({
      permissions: z.array(z.enum(permissionClasses)),
      database: z.string(),
      table: z.string().exactOptional(),
      everyTable: z.string().exactOptional(),
      alias: z.string().exactOptional(),
    }),
  ),
});

/**
 * Handles are signed with the gateway's key (RFC 7519), so that every worker and replica reads them
 * and none keeps a list.
 */
export class Handles {
  readonly #keys: LiveKeyRing;
  readonly #issuer: string;

  constructor(keys: LiveKeyRing, issuer: string) {
    this.#keys = keys;
    this.#issuer = issuer;
  }

  async seal(kind: string, user: string, { value, accesses }: Handle): Promise<string> {
    const { algorithm, signer } = this.#keys.ring;
    return new SignJWT({ kind, value, accesses })
      .setProtectedHeader({ alg: algorithm, kid: signer.kid, typ: TYPE })
      .setSubject(user)
      .setIssuer(this.#issuer)
      .setAudience(AUDIENCE)
      .setExpirationTime(epochSeconds() + LIFETIME_SECONDS)
      .sign(signer.key);
  }

  /** @throws Refusal `handle_not_found` */
  open(kind: string, user: string, sealed: string): Handle {
    const { ring } = this.#keys;
    const pin = {
      algorithm: ring.algorithm,
      verifier: (kid: string) => ring.verifier(kid),
      type: TYPE,
      issuer: this.#issuer,
      audience: AUDIENCE,
      longest: LONGEST,
    };
    try {
      const { claims } = verifyPinned(pin, sealed);
      if (claims.kind === kind && claims.sub === user) return handleShape.parse(claims);
    } catch {
      // It says nothing about why.
    }
    throw new Refusal("handle_not_found");
  }
}
