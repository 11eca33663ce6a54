import { Worker } from "node:worker_threads";
import { manageableBy } from "../access/administration-rights.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { moments, readMoment } from "../clock.ts";
import { siblingModule } from "../ipc/child-program.ts";
import type { AuditFilter } from "../observe/audit-filter.ts";
import { auditOutcomes } from "../observe/audit-lines.ts";
import type {
  AuditAnswer,
  AuditPosition,
  AuditQuestion,
  ShownDatabases,
} from "../observe/audit-search.ts";
import type { SummaryQuestion } from "../observe/audit-summary.ts";
import { Refusal } from "../refusal.ts";
import { draftGrant } from "./audit-draft.ts";
import { type Failure, failureOf, mayGrantTo } from "./changes.ts";
import { auditPage } from "./pages/audit.ts";
import { type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

/** Lines of one page. */
const PAGE = 50;
/** Milliseconds for which one page looks back; the next one goes on from there. */
const PATIENCE_MS = 5000;
/** Milliseconds after which a question is given up: compressed files are read whole. */
const LONGEST_MS = 60_000;

const names = ["user", "table", "operation", "outcome", "since", "until"];

/** What is asked, by the names of the form's fields. */
function fieldsOf(c: ConsoleRequest): Map<string, string> {
  const asked = names.map((name) => [name, (c.req.query(name) ?? "").trim()] as const);
  const fields = new Map(asked);
  if (c.req.query("since") === undefined) fields.set("since", "24h");
  return fields;
}

/** A moment of the form, in UTC, which a browser writes without saying so. */
function momentOf(name: string, text: string, otherwise: number): number {
  if (text === "") return otherwise;
  const written = /^\d{4}-\d\d-\d\dT\d\d:\d\d$/.test(text) ? `${text}:00Z` : text;
  const moment = readMoment(written);
  if (moment !== undefined) return moment;
  throw new Refusal("bad_request", { message: `${name} may be ${moments}` });
}

/** @throws Refusal `bad_request` that says what is wrong */
function filterOf(fields: ReadonlyMap<string, string>): AuditFilter {
  const at = (name: string) => fields.get(name) || undefined;
  return {
    ...{ user: at("user"), table: at("table"), operation: at("operation") },
    outcome: auditOutcomes.find((one) => one === at("outcome")),
    since: momentOf("From", fields.get("since") ?? "", 0),
    until: momentOf("Until", fields.get("until") ?? "", Number.POSITIVE_INFINITY),
  };
}

function positionOf(text: string | undefined): AuditPosition | undefined {
  const [, inode, offset] = /^(\d{1,20})-(\d{1,15})$/.exec(text ?? "") ?? [];
  return inode === undefined ? undefined : { inode, offset: Number(offset) };
}

/** The databases whose lines a visitor may see: an administrator all, and what is of none. */
export function shownTo({ snapshot, actor, isAdministrator }: Visitor): ShownDatabases | undefined {
  const { isVisible } = manageableBy(snapshot, actor);
  if (isAdministrator) return undefined;
  const known = [...snapshot.databases.values(), EVERY_DATABASE];
  return {
    named: new Map(known.map((name) => [name, isVisible(name)])),
    others: isVisible(EVERY_DATABASE),
  };
}

async function ask(
  c: ConsoleRequest,
  visitor: Visitor,
  file: string,
  fields: ReadonlyMap<string, string>,
): Promise<AuditAnswer> {
  const question = {
    ...{ file, filter: filterOf(fields), shown: shownTo(visitor) },
    ...{ from: positionOf(c.req.query("from")), limit: PAGE, patience: PATIENCE_MS },
  };
  const signal = AbortSignal.any([c.req.raw.signal, AbortSignal.timeout(LONGEST_MS)]);
  try {
    return await askAudit<AuditAnswer>(question, signal);
  } catch (error) {
    if (error instanceof Refusal) throw error;
    const reason = error instanceof Error ? error.message : "unknown";
    c.var.options.log.warn({ file, reason }, "the audit cannot be read");
    throw new Refusal("busy", { message: "The audit's files cannot be read just now" });
  }
}

/** `GET /audit`: what was asked and changed, the newest first. */
export async function showAudit(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { snapshot, actor } = visitor;
  manageableBy(snapshot, actor);
  const { auditFile } = c.var.options;
  const fields = fieldsOf(c);
  let failure: Failure | undefined;
  let answer: AuditAnswer | undefined;
  try {
    if (auditFile !== undefined) answer = await ask(c, visitor, auditFile, fields);
  } catch (error) {
    failure = failureOf(error);
  }
  const page = auditPage({
    ...{ fields, hasFile: auditFile !== undefined, isAdministrator: visitor.isAdministrator },
    ...{ isLater: c.req.query("from") !== undefined, answer, failure },
    draft: (line) =>
      mayGrantTo(snapshot, actor, line.user ?? "") ? draftGrant(snapshot, line) : undefined,
  });
  return sendPage(c, visitor, page, failure?.status);
}

/** Questions that are answered at one time. */
const MOST_QUESTIONS = 2;
/** Megabytes of objects that one may hold. */
const MOST_MEMORY = 128;

let asked = 0;

/**
 * Asks the audit's files in a thread of its own.
 *
 * @param signal gives it up
 * @throws Refusal `busy`, or the file system's error
 */
export async function askAudit<Answer>(
  question: AuditQuestion | SummaryQuestion,
  signal: AbortSignal,
): Promise<Answer> {
  if (asked >= MOST_QUESTIONS) throw new Refusal("busy", { retryAfter: 2 });
  asked += 1;
  const worker = new Worker(siblingModule(import.meta.url, "audit-program"), {
    workerData: question,
    resourceLimits: { maxOldGenerationSizeMb: MOST_MEMORY },
  });
  const giveUp = () => void worker.terminate();
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    worker.once("message", resolve).once("error", reject);
    worker.once("exit", () => reject(new Refusal("busy", { retryAfter: 2 })));
    return await promise;
  } finally {
    asked -= 1;
    signal.removeEventListener("abort", giveUp);
    giveUp();
  }
}
