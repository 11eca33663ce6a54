import { hash, randomBytes } from "node:crypto";
import type { Revocations } from "./revocations.ts";
import type { TokenClaims } from "./token.ts";

/**
 * The credential of tokens and sessions of a sign-in through a provider. Others have a fingerprint
 * of the password.
 * It names all by which the sign-in can end, so that a check reads nothing but revocations.
 */
interface SignInId {
  readonly id: string;
  /** Epoch seconds at which the sign-in ends. */
  readonly until: number;
  /** `sessionKey` of the provider's session. Empty if the provider names none. */
  readonly session: string;
  /** `subjectKey` of the provider's user. Empty if the username already is its `sub`. */
  readonly subject: string;
}

const pattern = /^@([\w-]+)\.(\d+)\.([\w-]*)\.([\w-]*)$/;

export function newSignIn({ until, session, subject }: Omit<SignInId, "id">) {
  const id = randomBytes(16).toString("base64url");
  return { id, credential: `@${id}.${until}.${session}.${subject}` };
}

/** Undefined for the credential of a password. */
export function parseSignIn(credential: string): SignInId | undefined {
  const [match, id = "", until, session = "", subject = ""] = pattern.exec(credential) ?? [];
  return match === undefined ? undefined : { id, until: Number(until), session, subject };
}

function shortHash(...parts: readonly string[]): string {
  return hash("sha256", JSON.stringify(parts), "base64url").slice(0, 22);
}

/** Names a session of the provider: the claim `sid` (OpenID Connect Back-Channel Logout, 2.4). */
export function sessionKey(prefix: string, sid: unknown): string {
  return typeof sid === "string" && sid !== "" ? shortHash("sid", prefix, sid) : "";
}

/** Names a user of the provider whose username here is another claim than `sub`. */
export function subjectKey(prefix: string, usernameClaim: string, subject: unknown): string {
  if (usernameClaim === "sub" || typeof subject !== "string") return "";
  return shortHash("sub", prefix, subject);
}

export const signInRevocation = (id: string): string => `sign-in:${id}`;
export const sessionRevocation = (session: string): string => `session:${session}`;

export function issuerPrefix(username: string): string {
  return username.slice(0, username.indexOf(":"));
}

/** The name under which all tokens of a provider's user are revoked. */
export function subjectRevocation(username: string, subject: string): string {
  return subject === "" ? username : `${issuerPrefix(username)}:sub=${subject}`;
}

/** True for what follows the prefix in `subjectRevocation`. No user has such a name. */
export function isSubjectName(name: string): boolean {
  return /^sub=[\w-]{22}$/.test(name);
}

/**
 * A longer lifetime of tokens with a session does not count. The end of a session is remembered a
 * day longer.
 */
export const SESSION_TOKEN_SECONDS = 30 * 86_400;

type Issued = Pick<TokenClaims, "username" | "issuedAt">;

/** True after a logout at the provider that covers what was issued. */
export function isLoggedOut(
  revocations: Pick<Revocations, "isRevoked">,
  { session, subject }: Pick<SignInId, "session" | "subject">,
  { username, issuedAt }: Issued,
): boolean {
  if (session === "" && subject === "") return false;
  return revocations.isRevoked({
    tokenId: sessionRevocation(session),
    username: subjectRevocation(username, subject),
    issuedAt,
  });
}

/** True once the sign-in has ended, whatever its user may do. */
export function isSignInEnded(
  revocations: Pick<Revocations, "isRevoked">,
  signIn: SignInId,
  issued: Issued,
): boolean {
  const { id, until } = signIn;
  return (
    until * 1000 <= Date.now() ||
    revocations.isRevoked({ ...issued, tokenId: signInRevocation(id) }) ||
    isLoggedOut(revocations, signIn, issued)
  );
}
