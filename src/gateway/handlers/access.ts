import * as z from "zod";
import { planGrant, planRevoke } from "../../access/administration.ts";
import { maySeeGrants, requireManager } from "../../access/administration-rights.ts";
import { EVERY_DATABASE, isRole } from "../../access/roles.ts";
import { accessList, type Grant, type Snapshot } from "../../access/snapshot.ts";
import type { Subject } from "../../access/subject.ts";
import { Refusal } from "../../refusal.ts";
import { changeAccess, requireCaller } from "../administration.ts";
import { sendList, sendSuccess } from "../answer.ts";
import { parseBody, SMALL_BODY_BYTES } from "../body.ts";
import { databaseParameter, usernameParameter } from "../parameters.ts";
import type { Endpoint } from "../route.ts";

const shape = z.strictObject({ role: z.string() });

/** The grants that `actor` may see; undefined after each user. */
function* visibleGrants(snapshot: Snapshot, actor: Subject): Generator<Grant | undefined> {
  for (const username of snapshot.grants.keys()) {
    for (const { database, role } of accessList(snapshot, username)) {
      if (maySeeGrants(snapshot, actor, database)) yield { username, database, role };
    }
    yield undefined;
  }
}

/** `GET /api/access`: who has which role, on the databases that the caller may grant on. */
export const listAccess: Endpoint = {
  authentication: "administration",
  handle(gateway, exchange) {
    const { snapshot } = gateway.access;
    const { actor } = requireCaller(exchange);
    requireManager(snapshot, actor);
    exchange.verdict.allow();
    return sendList(exchange, "access", visibleGrants(snapshot, actor));
  },
};

/** `PUT /api/access/<u>/<database>`: gives a role, in the place of the one held there. */
export const putAccess: Endpoint = {
  authentication: "administration",
  bodyLimit: SMALL_BODY_BYTES,
  async handle(gateway, exchange, body) {
    const username = usernameParameter(exchange);
    const database = databaseParameter(exchange, [EVERY_DATABASE]);
    const { role } = parseBody(body, shape);
    if (!isRole(role)) throw new Refusal("invalid_role");
    const grant = { username, database, role };
    await changeAccess(gateway, exchange, (current, actor) => planGrant(current, actor, grant));
    sendSuccess(exchange, 200, { access: [grant] });
  },
};

/** `DELETE /api/access/<u>/<database>`: takes a role away. */
export const deleteAccess: Endpoint = {
  authentication: "administration",
  async handle(gateway, exchange) {
    const username = usernameParameter(exchange);
    const database = databaseParameter(exchange, [EVERY_DATABASE]);
    await changeAccess(gateway, exchange, (current, actor) =>
      planRevoke(current, actor, username, database),
    );
    sendSuccess(exchange, 200, {});
  },
};
