import * as z from "zod";
import { planGrant, planRevoke } from "../../access/administration.ts";
import { maySeeGrants, requireManager } from "../../access/administration-rights.ts";
import { type EntryPlace, readEntry, viewEntry } from "../../access/entry-view.ts";
import { entryKeys } from "../../access/limit-fields.ts";
import { EVERY_DATABASE } from "../../access/roles.ts";
import { accessList, type Snapshot } from "../../access/snapshot.ts";
import type { Subject } from "../../access/subject.ts";
import { changeAccess, requireCaller } from "../administration.ts";
import { sendList, sendSuccess } from "../answer.ts";
import { parseBody, SMALL_BODY_BYTES } from "../body.ts";
import type { Exchange } from "../exchange.ts";
import { databaseParameter, entryTableParameter, usernameParameter } from "../parameters.ts";
import type { Endpoint } from "../route.ts";

/** An entry without its place, which the path says. */
const shape = z.strictObject({
  role: z.string(),
  ...Object.fromEntries(
    Object.keys(entryKeys)
      .filter((key) => key !== "tables")
      .map((key) => [key, z.unknown().optional()]),
  ),
});

/** The place that the path names. */
function placeOf(exchange: Exchange): EntryPlace {
  const username = usernameParameter(exchange);
  const database = databaseParameter(exchange, [EVERY_DATABASE]);
  return { username, database, table: entryTableParameter(exchange) };
}

/** The grants that `actor` may see; undefined after each user. */
function* visibleGrants(snapshot: Snapshot, actor: Subject): Generator<object | undefined> {
  for (const username of snapshot.grants.keys()) {
    for (const entry of accessList(snapshot, username)) {
      if (maySeeGrants(snapshot, actor, entry.database)) yield { username, ...entry };
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

/**
 * `PUT /api/access/<u>/<database>`, and below it `/<table or pattern>`: gives an entry, in the
 * place of what is held there.
 */
export const putAccess: Endpoint = {
  authentication: "administration",
  bodyLimit: SMALL_BODY_BYTES,
  async handle(gateway, exchange, body) {
    const place = placeOf(exchange);
    const grant = readEntry(place, parseBody(body, shape));
    await changeAccess(gateway, exchange, (current, actor) => planGrant(current, actor, grant));
    sendSuccess(exchange, 200, { access: [{ username: place.username, ...viewEntry(grant) }] });
  },
};

/** `DELETE` of the same paths: takes away what is held there, whatever it says. */
export const deleteAccess: Endpoint = {
  authentication: "administration",
  async handle(gateway, exchange) {
    const { username, database, table } = placeOf(exchange);
    await changeAccess(gateway, exchange, (current, actor) =>
      planRevoke(current, actor, username, database, table),
    );
    sendSuccess(exchange, 200, {});
  },
};
