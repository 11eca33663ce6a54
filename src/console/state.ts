import { requireAdministrator } from "../access/administration-rights.ts";
import { isAdministrator } from "../access/snapshot.ts";
import { type StateView, statePage } from "./pages/state.ts";
import { type ConsoleRequest, refreshingOf, sendPage, visitorOf } from "./visit.ts";

/** Administrators that are named; there may be many. */
const NAMED = 8;

/** What the gateway is by now, for administrators. */
export async function stateViewOf(c: ConsoleRequest): Promise<StateView> {
  const { options, history } = c.var;
  const { access, revocations, gatewayUrl } = options;
  const { snapshot } = access;
  return {
    ...(await options.state()),
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
  };
}

/** `GET /state`: what is in force by now, and what has changed; for administrators. */
export async function showState(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  requireAdministrator(visitor.snapshot, visitor.actor);
  return sendPage(c, visitor, statePage(await stateViewOf(c)));
}
