import { type Change, endsTokens } from "../access/record-change.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { Subject } from "../access/subject.ts";
import { type Caller, identify } from "../identity/authenticate.ts";
import { Refusal } from "../refusal.ts";
import { describeChanges } from "./change-records.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

export interface ActingCaller {
  readonly caller: Caller;
  readonly actor: Subject;
}

/** @throws Refusal `unauthenticated` if the request has no caller */
export function requireCaller({ authenticated }: Exchange): ActingCaller {
  const { caller, subject } = authenticated;
  if (caller === undefined || subject === undefined) throw new Refusal("unauthenticated");
  return { caller, actor: subject };
}

/**
 * Changes the access file on behalf of the caller. The caller is looked up again in the file read
 * under the lock, so a caller who has just lost their rights changes nothing. Resolves when the new
 * state is in force.
 *
 * @param endsTokensOf a user whose tokens the change may end; they stay dead even if an older
 * access file is restored
 * @returns the snapshot as written
 * @throws Refusal from `plan`, or if the file or the revocations cannot be changed
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
