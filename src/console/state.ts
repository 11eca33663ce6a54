import { requireAdministrator } from "../access/administration-rights.ts";
import { isAdministrator } from "../access/snapshot.ts";
import { statePage } from "./pages/state.ts";
import { type ConsoleRequest, refreshingOf, sendPage, visitorOf } from "./visit.ts";

/** Administrators that are named; there may be many. */
const NAMED = 8;

/** `GET /state`: what is in force by now, and what has changed; for administrators. */
export async function showState(c: ConsoleRequest): Promise<Response> {
  const { options, history } = c.var;
  const visitor = visitorOf(c);
  requireAdministrator(visitor.snapshot, visitor.actor);
  const { access, revocations, gatewayUrl } = options;
  const { snapshot } = access;
  const state = await options.state();
  const page = statePage({
    ...state,
    gatewayUrl,
    accessVersion: snapshot.version,
    accessStale: access.stale,
    revocationsStale: revocations.stale,
    revocationsFailure: revocations.failure,
    users: snapshot.users.size,
    administrators: snapshot.users
      .keys()
      .filter((name) => isAdministrator(snapshot, name))
      .take(NAMED)
      .toArray(),
    events: await history.events(),
    since: options.earlierVersions === undefined ? history.since : undefined,
    refreshing: refreshingOf(c),
  });
  return sendPage(c, visitor, page);
}
