import * as z from "zod";
import { epochSeconds } from "../../clock.ts";
import { type AccountContext, findUser, parseAccountId } from "./accounts.ts";
import { type Consent, readConsent } from "./consent.ts";
import { lifetimes } from "./lifetimes.ts";
import type { StateStore } from "./state-store.ts";

/** An app that a user has let in, by one consent. Times in epoch seconds. */
export interface Connection extends Consent {
  readonly grantId: string;
  readonly accountId: string;
  readonly username: string;
  readonly clientId: string;
  readonly allowedAt: number;
  /** When a refresh token was last issued; undefined if none is left. */
  readonly renewedAt: number | undefined;
  /** The tools that it has called, in the order of their names. */
  readonly called: readonly string[];
}

const grantShape = z.object({
  accountId: z.string(),
  clientId: z.string(),
  iat: z.number(),
  rar: z.array(z.unknown()),
});

/** The apps that a user has let in, or that anybody has, the newest first. */
export async function connectionsOf(
  store: Pick<StateStore, "grants">,
  username?: string,
): Promise<Connection[]> {
  return (await store.grants(username))
    .flatMap(({ id, payload, renewed, called }) => {
      const { data: grant } = grantShape.safeParse(JSON.parse(payload));
      const consent = readConsent(grant?.rar);
      if (grant === undefined || consent === undefined) return [];
      const { accountId, clientId, iat } = grant;
      return {
        ...consent,
        grantId: id,
        accountId,
        username: parseAccountId(accountId).username,
        clientId,
        allowedAt: iat,
        renewedAt: renewed,
        called,
      };
    })
    .sort((one, other) => other.allowedAt - one.allowedAt);
}

/** True while the app can have access, or get it without asking its user again. */
export function isConnected(
  context: AccountContext,
  { accountId, allowedAt, renewedAt }: Connection,
): boolean {
  const issued = { tokenId: "", issuedAt: allowedAt };
  if (findUser(context, accountId, issued) === undefined) return false;
  return renewedAt !== undefined || allowedAt + lifetimes.accessToken > epochSeconds();
}

/** Characters by which the id of an access token names its grant: 132 random bits. */
const FAMILY = 22;

/** The id of an access token under a grant. @param random made up, of 43 characters */
export function tokenIdIn(grantId: string, random: string): string {
  return grantId.slice(0, FAMILY) + random.slice(FAMILY);
}

/** True for the id of an access token that was issued under the grant. */
export function isTokenOf({ grantId }: Connection, tokenId: string): boolean {
  return tokenId.startsWith(grantId.slice(0, FAMILY));
}
