import type { RefusalCode } from "../refusal.ts";

/** What a challenge tells a client of a protected resource besides its realm (RFC 9728). */
export interface ResourceChallenge {
  /** The URL of the resource's metadata. */
  readonly metadata: string;
  /** All scopes that the request needs, so that one step up is enough. */
  readonly scope: string;
}

/** Refusals that say by their challenge what is wrong with the token (RFC 6750, section 3.1). */
const errors: ReadonlyMap<string, string> = new Map<RefusalCode, string>([
  ["token_invalid", "invalid_token"],
  ["token_expired", "invalid_token"],
  ["token_revoked", "invalid_token"],
  ["user_gone", "invalid_token"],
  ["insufficient_scope", "insufficient_scope"],
]);

/** True if the refusal carries a challenge: every 401, and the 403 for a missing scope. */
export function isChallenged(code: string, status: number): boolean {
  return status === 401 || code === "insufficient_scope";
}

/**
 * The value of `WWW-Authenticate` for a refusal.
 *
 * @param scope what the refusal says is needed, in the place of all that the resource has
 */
export function challengeOf(
  code: string,
  resource: ResourceChallenge | undefined,
  scope = resource?.scope,
): string {
  const parameters = [resource === undefined ? 'realm="gatehouse"' : 'realm="mcp"'];
  if (resource !== undefined) parameters.push(`resource_metadata="${resource.metadata}"`);
  const error = errors.get(code);
  if (error !== undefined) parameters.push(`error="${error}"`);
  if (resource !== undefined) parameters.push(`scope="${scope}"`);
  return `Bearer ${parameters.join(", ")}`;
}
