import { pino } from "pino";
import type { Test } from "tap";
import { createExternalIssuers, type ExternalIssuers } from "../../src/oauth/external-issuers.ts";
import type { Refusal } from "../../src/refusal.ts";
import { refusedBy } from "../access/kit.ts";
import { TestIssuer, type TokenChanges } from "./issuer.ts";

/** The resource that tokens are for. */
export const resource = "https://gate.example.com/mcp";

/** An external issuer, and what accepts its tokens. */
export interface Setting {
  readonly issuer: TestIssuer;
  /** Accepts the issuer's tokens, with nothing remembered of it yet. */
  fresh(claim?: string): ExternalIssuers;
  /** Verifies a token; `fresh` verifies it unless another one is named. */
  verify(token: string, issuers?: ExternalIssuers): Promise<string>;
  /** The code by which a token with these changes is refused. */
  refusal(changes: TokenChanges | string, issuers?: ExternalIssuers): Promise<string>;
  /** The whole refusal of such a token. */
  refused(changes: TokenChanges | string, issuers?: ExternalIssuers): Promise<Refusal>;
}

/** Starts an issuer. */
export async function openSetting(t: Test): Promise<Setting> {
  const issuer = await TestIssuer.start(t);
  const fresh = (username_claim = "sub") => {
    const settings = { issuer: issuer.url, prefix: "staff", username_claim };
    return createExternalIssuers([settings], () => resource, pino({ level: "silent" }));
  };
  const verify = async (token: string, issuers = fresh()) =>
    (await issuers.verify(issuer.url, token)).user;
  const refused: Setting["refused"] = async (changes, issuers) => {
    const token = typeof changes === "string" ? changes : await issuer.sign(resource, changes);
    return refusedBy(verify(token, issuers));
  };
  return {
    ...{ issuer, fresh, verify, refused },
    refusal: async (changes, issuers) => (await refused(changes, issuers)).code,
  };
}
