import { createHmac, createSecretKey, type KeyObject } from "node:crypto";
import { mock } from "node:test";
import type { Test } from "tap";
import type { Pin } from "../../src/identity/jwt-verification.ts";
import { encodePart } from "./forge.ts";

/** Epoch seconds at which a test of the clock begins. */
export const START = 1_800_000_000;

/** Stops the clock at `START`; what is returned sets it, in seconds since then. */
export function stopClock(t: Test): (seconds: number) => void {
  mock.timers.enable({ apis: ["Date"], now: START * 1000 });
  t.teardown(() => mock.timers.reset());
  return (seconds) => mock.timers.setTime((START + seconds) * 1000);
}

/** A secret made of a word, so that two of the same word are equal but not the same object. */
export function secretOf(word: string): KeyObject {
  return createSecretKey(Buffer.from(word.padEnd(32, ".")));
}

/** A pin of HS256 whose keys a test can change. */
export function pinOf(keys: ReadonlyMap<string, KeyObject>): Pin {
  return {
    algorithm: "HS256",
    verifier: (kid) => keys.get(kid),
    type: "JWT",
    issuer: "gatehouse",
    audience: "gatehouse",
    longest: 1000,
  };
}

/** A token under a key; by default good for a minute from `START` on. */
export function tokenOf(key: KeyObject, kid: string, claims: Record<string, unknown> = {}): string {
  const always = { iss: "gatehouse", aud: "gatehouse", exp: START + 60 };
  const header = encodePart({ alg: "HS256", kid, typ: "JWT" });
  const input = `${header}.${encodePart({ ...always, ...claims })}`;
  return `${input}.${createHmac("sha256", key).update(input).digest("base64url")}`;
}
