import type { AccessRules } from "../access/access-rules.ts";
import type { User } from "../access/grant.ts";
import { type HashCosts, parsePasswordHash } from "../access/password-hash.ts";
import { EVERY_DATABASE, isExternalUsername } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { Refusal } from "../base/refusal.ts";
import { earliestIssue, passwordFingerprint } from "./authenticate.ts";
import { costsInUse } from "./hash.ts";
import type { HashClient, Hashing } from "./hashing.ts";
import { hashPassword, verifyPassword } from "./password.ts";
import type { Revocations } from "./revocations.ts";
import { addressKey, type LoginOrigin, type LoginThrottle } from "./throttle.ts";
import { type TokenAuthority, tokenRole } from "./token.ts";

export interface LoginContext {
  readonly snapshot: () => Snapshot;
  readonly revocations: Pick<Revocations, "earliestIssue">;
  readonly change: AccessRules["change"];
  readonly tokens: Pick<TokenAuthority, "issue">;
  readonly throttle: LoginThrottle;
  readonly hashing: Hashing;
  readonly costs: HashCosts;
  /** In seconds. */
  readonly tokenLifetime: number;
  /** The login still succeeds. */
  readonly onUpgradeFailed: (error: unknown) => void;
}

function toHashClient(
  { address, isShared, signal }: LoginOrigin,
  username: string | undefined,
): HashClient {
  return { address: addressKey(address), username, isShared, signal };
}

/** Hashes a new password. @param username the caller, undefined if not authenticated */
export function hashNewPassword(
  { hashing, costs }: LoginContext,
  origin: LoginOrigin,
  username: string | undefined,
  password: string,
): Promise<string> {
  const client = toHashClient(origin, username);
  return hashing.run([costs], client, (derive) => hashPassword(password, costs, { derive }));
}

/**
 * Resolves to the user as of the verification.
 *
 * @throws Refusal `credentials_invalid`, `too_many_attempts` or `login_busy`
 */
export async function checkPassword(
  context: LoginContext,
  username: string,
  password: string,
  origin: LoginOrigin,
): Promise<User> {
  const attempt = await context.throttle.begin(username, origin);
  const snapshot = context.snapshot();
  const user = snapshot.users.get(username);
  // Without the groups of its sign-in, an external user could have more rights than with them.
  const isBarred = user?.disabled || isExternalUsername(username);
  const hash = isBarred ? undefined : user?.passwordHash;
  let isRight: boolean;
  try {
    const costs = await costsInUse(snapshot, context.costs);
    isRight = await context.hashing.run(costs, toHashClient(origin, username), (derive) =>
      verifyPassword(password, hash, costs, derive),
    );
  } catch (error) {
    await attempt.complete("unjudged");
    throw error;
  }
  const isGood = user !== undefined && isRight;
  await attempt.complete(isGood ? "succeeded" : "failed");
  if (!isGood) throw new Refusal("credentials_invalid");
  return user;
}

/** Rehashes with the configured costs. The salt stays, so that the user's tokens remain valid. */
async function upgradeHash(
  context: LoginContext,
  user: User,
  password: string,
  origin: LoginOrigin,
): Promise<void> {
  const { username, passwordHash = "" } = user;
  const { costs, hashing } = context;
  const stored = parsePasswordHash(passwordHash);
  if (stored === undefined) return;
  const { memory, time } = stored.costs;
  const isLower = memory < costs.memory || time < costs.time;
  if (!isLower || memory > costs.memory || time > costs.time) return;
  try {
    const stronger = await hashing.run([costs], toHashClient(origin, username), (derive) =>
      hashPassword(password, costs, { derive, salt: stored.salt }),
    );
    await context.change(({ users }) =>
      users.get(username)?.passwordHash === passwordHash
        ? [{ kind: "update-user", username, update: { passwordHash: stronger } }]
        : [],
    );
  } catch (error) {
    context.onUpgradeFailed(error);
  }
}

/** @throws Refusal as `checkPassword`, or the reason why the user has no role on the database */
export async function logIn(
  context: LoginContext,
  request: { username: string; password: string; database: string | undefined },
  origin: LoginOrigin,
): Promise<{ token: string; expiresIn: number }> {
  const { username, password, database = EVERY_DATABASE } = request;
  const { tokenLifetime: lifetime } = context;
  const user = await checkPassword(context, username, password, origin);
  const role = tokenRole(context.snapshot(), username, database);
  await upgradeHash(context, user, password, origin);
  const { token } = await context.tokens.issue({
    username,
    database,
    role,
    credential: passwordFingerprint(user),
    lifetime,
    notBefore: earliestIssue(context.revocations, user),
  });
  return { token, expiresIn: lifetime };
}
