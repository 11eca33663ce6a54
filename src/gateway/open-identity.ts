import path from "node:path";
import type { LiveAccess } from "../access/live.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { configuredCosts } from "../identity/costs.ts";
import { makeHandEditsLast } from "../identity/hand-edits.ts";
import { openHashing } from "../identity/hashing.ts";
import { type LiveKeyRing, openLiveKeyRing } from "../identity/key-ring.ts";
import type { LoginContext } from "../identity/login.ts";
import { type LiveRevocations, openRevocations } from "../identity/revocations.ts";
import { createLoginThrottle } from "../identity/throttle.ts";
import { createTokenAuthority, type TokenAuthority } from "../identity/token.ts";
import type { Log } from "../observe/log.ts";

/** All that tells who is calling. */
export interface Identity {
  readonly keys: LiveKeyRing;
  readonly revocations: LiveRevocations;
  readonly tokens: TokenAuthority;
  readonly login: LoginContext;
}

/** What an error may show in a log. */
function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : "unknown";
}

/** Where the signing keys lie. */
export function keysDirectoryOf(serviceDirectory: string): string {
  return path.join(serviceDirectory, "keys");
}

/** Opens keys and revocations, and puts their closing on the stack. */
export async function openIdentity(
  { configuration, serviceDirectory }: LoadedConfiguration,
  access: LiveAccess,
  log: Log,
  opened: AsyncDisposableStack,
): Promise<Identity> {
  const { auth } = configuration;
  const checkRead = { checkRead: auth.check_permissions };
  const keys = await openLiveKeyRing({
    ...checkRead,
    directory: keysDirectoryOf(serviceDirectory),
    algorithm: auth.signing_algorithm,
    onReload: () => log.info({ signer: keys.ring.signer.kid }, "signing keys reloaded"),
    onFailure: (error) =>
      log.error({ reason: reasonOf(error) }, "signing keys refused: no new key is taken"),
  });
  opened.defer(() => keys.close());
  const revocations = await openRevocations(auth.revocations_file, {
    ...checkRead,
    onFailure: (error) =>
      log.error(
        { reason: reasonOf(error) },
        "revocations refused: the last good state stays in force",
      ),
  });
  opened.defer(() => revocations.close());
  const stop = makeHandEditsLast(access, revocations, (user, error) =>
    log.error({ user, reason: reasonOf(error) }, "tokens could not be revoked for good"),
  );
  opened.defer(stop);
  const tokens = createTokenAuthority(() => keys.ring, auth.issuer);
  const costs = configuredCosts(configuration);
  const hashing = openHashing(costs);
  opened.defer(() => hashing.close());
  const login: LoginContext = {
    snapshot: () => access.snapshot,
    revocations,
    accessFile: auth.access_control_file,
    tokens,
    throttle: createLoginThrottle({
      perUserAndAddress: auth.max_failures_per_user_and_address,
      perAddress: auth.max_failures_per_address,
      window: auth.failure_window,
    }),
    hashing,
    costs,
    tokenLifetime: auth.token_expiration,
    onUpgradeFailed: (error) =>
      log.warn(
        { reason: reasonOf(error) },
        "a password hash could not be upgraded to the configured costs",
      ),
  };
  return { keys, revocations, tokens, login };
}
