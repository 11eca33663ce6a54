import { manageableBy } from "../access/administration-rights.ts";
import { Refusal } from "../refusal.ts";
import { type Failure, failureOf, requireManageable } from "./changes.ts";
import type { Explanation } from "./options.ts";
import { checkPage } from "./pages/access-check.ts";
import type { Fields } from "./pages/forms.ts";
import { type Console, type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

function show(
  console: Console,
  c: ConsoleRequest,
  fields: Fields,
  result: { explanation?: Explanation; failure?: Failure },
): Response {
  const visitor = visitorOf(console, c);
  manageableBy(visitor.snapshot, visitor.actor);
  const page = checkPage({ fields, csrf: visitor.csrf, ...result });
  return sendPage(c, visitor, page, result.failure?.status);
}

/** `GET /access/check`: the form for a question. */
export function showCheck(console: Console, c: ConsoleRequest): Response {
  return show(console, c, new Map([["user", c.req.query("user") ?? ""]]), {});
}

/** `POST /access/check`: would this query pass, for whom, by which entry, and as which bytes. */
export function check(console: Console, c: ConsoleRequest): Response {
  const { form } = c.var;
  try {
    return show(console, c, form, { explanation: explain(console, c, form) });
  } catch (error) {
    return show(console, c, form, { failure: failureOf(error) });
  }
}

/** @throws Refusal for a user or a database that is beyond what the visitor may see */
function explain({ options, ...rest }: Console, c: ConsoleRequest, form: Fields): Explanation {
  const { snapshot, actor } = visitorOf({ options, ...rest }, c);
  const username = form.get("user") ?? "";
  requireManageable(snapshot, actor, username);
  const via = form.get("via") === "mcp" ? "mcp" : "query";
  const found = options.explain(username, via, Buffer.from(form.get("query") ?? ""));
  const { isVisible } = manageableBy(snapshot, actor);
  const isSeen = (found.query?.accesses ?? []).every(({ database }) => isVisible(database));
  if (!isSeen) throw new Refusal("role_insufficient");
  return found;
}
