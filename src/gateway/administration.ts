import { type Change, endsTokens } from "../access/record-change.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { Subject } from "../access/subject.ts";
import { type Caller, identify } from "../identity/authenticate.ts";
import { Refusal } from "../refusal.ts";
import { describeChanges } from "./change-records.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/** The caller, and the rights by which it acts. */
export interface ActingCaller {
  readonly caller: Caller;
  readonly actor: Subject;
}

/** @throws Refusal `unauthenticated` if nobody is calling, whom the endpoint's requirement keeps out */
export function requireCaller({ authenticated }: Exchange): ActingCaller {
  const { caller, subject } = authenticated;
  if (caller === undefined || subject === undefined) throw new Refusal("unauthenticated");
  return { caller, actor: subject };
}

/**
 * Changes the access file for the caller. The caller itself is looked up again in what is read
 * under the lock, so that one who has just lost its rights changes nothing. When this resolves,
 * the gateway decides by the new state.
 *
 * @param endsTokensOf a user whose tokens the change may end; they stay dead if an older access file
 *   is restored
 * @returns the snapshot as written
 * @throws Refusal from `plan`, or why the file or the revocations cannot be changed
 */
export async function changeAccess(
  gateway: Gateway,
  exchange: Exchange,
  plan: (current: Snapshot, actor: Subject) => readonly Change[],
  endsTokensOf?: string,
): Promise<Snapshot> {
  const { caller, actor } = requireCaller(exchange);
  let changes: readonly Change[] = [];
  const planAsCaller = (current: Snapshot) => {
    identify(current, gateway.revocations, caller.token);
    changes = plan(current, actor);
    return changes;
  };
  const written = await gateway.access.change(planAsCaller, {
    author: { kind: "api", name: actor.username },
    ...(endsTokensOf === undefined
      ? {}
      : {
          async beforeWrite() {
            if (endsTokens(changes)) await gateway.revocations.revokeUser(endsTokensOf);
          },
        }),
  });
  exchange.verdict.allow();
  gateway.changes.noteVersion(written.version);
  exchange.verdict.changes = [
    ...describeChanges(changes),
    ...(endsTokensOf === undefined || !endsTokens(changes)
      ? []
      : [{ change: "tokens revoked", user: endsTokensOf }]),
  ];
  return written;
}
