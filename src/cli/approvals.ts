import type { Command } from "commander";
import { openGrammar } from "../app/own-engine.ts";
import { isThere, systemUser } from "../core/base/files/guarded.ts";
import { invocation } from "../core/base/product.ts";
import { counted } from "../core/base/suggestion.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { parseUnrounded } from "../core/json/exact.ts";
import { EngineRefusal } from "../engine/refusal.ts";
import { answerText } from "../engine/spool.ts";
import {
  type Approval,
  type ApprovalDecision,
  type ApprovalStore,
  type Approver,
  approvalFilePath,
  approvalSummary,
  describeApprovers,
  type KeptQuery,
  readReason,
} from "../features/approvals/approval.ts";
import { openApprovalsIn } from "../features/approvals/approval-file.ts";
import {
  countShown,
  type NoPreview,
  type PreviewRows,
  previewQuery,
  readPreviewRows,
  refusedPreview,
  visibleJson,
} from "../features/approvals/preview.ts";
import { queryInWords } from "../features/approvals/query-words.ts";
import { openAsGuest } from "./database-schema.ts";
import { readAccess, storeOf } from "./operator.ts";
import { atEnd, type CommonOptions, commandGroup, defineCommands, loadFor } from "./options.ts";
import { explain, formatMoment, plainly, print, printJson, printList } from "./output.ts";

const TIMEOUT_MS = 60_000;

async function readPreview(loaded: LoadedConfiguration, approval: Approval, kept: KeptQuery) {
  const { isEngine, grammar } = openGrammar(loaded);
  const foreign = { reason: "a foreign upstream cannot show the rows" };
  // With one beside it, the gateway compares no rows of its own database either.
  if (!isEngine) return foreign;
  const preview = await previewQuery(await readAccess(loaded), grammar, approval, kept);
  if ("reason" in preview) return preview;
  try {
    const store = await openAsGuest(loaded, TIMEOUT_MS);
    if (store === undefined) return foreign;
    atEnd(() => store.close());
    const answer = await store.execute(preview, new AbortController());
    return readPreviewRows(200, await answerText(answer));
  } catch (error) {
    if (error instanceof EngineRefusal) return { reason: refusedPreview(error.message) };
    return { reason: `the database does not respond: ${explain(error)}` };
  }
}

/** Returns undefined if no approval was ever requested. */
async function openApprovals(loaded: LoadedConfiguration): Promise<ApprovalStore | undefined> {
  const { configuration, serviceDirectory } = loaded;
  const { keep } = configuration.approvals;
  if (configuration.store.url !== undefined) {
    const { approvalsInStore } = await import("../features/store/approval-database.ts");
    return approvalsInStore(await storeOf(loaded), keep);
  }
  if (!isThere(approvalFilePath(serviceDirectory))) return undefined;
  const store = await openApprovalsIn(serviceDirectory, keep);
  atEnd(() => store.close());
  return store;
}

/** @throws Error if no approval has this id */
async function openApproval(loaded: LoadedConfiguration, id: string) {
  const store = await openApprovals(loaded);
  const approval = await store?.find(id.toLowerCase());
  if (store !== undefined && approval !== undefined) return { store, approval };
  throw new Error(`unknown approval; \`${invocation} approvals list --all\` lists all`);
}

function operator(): Approver {
  return { kind: "cli", name: systemUser() };
}

function viewApproval(approval: Approval): object {
  const { id, state, username, via, client, operations, operationCount, rules } = approval;
  const { asked, expires, decided, author, reason } = approval;
  return {
    id,
    state,
    user: username,
    via,
    client,
    operations,
    operation_count: operationCount,
    rules,
    asked: formatMoment(asked / 1000),
    expires: formatMoment(expires / 1000),
    decided: decided && formatMoment(decided / 1000),
    author,
    reason,
  };
}

async function list(options: CommonOptions & { readonly all?: true }): Promise<void> {
  const store = await openApprovals(loadFor(options));
  const known = (await store?.list()) ?? [];
  const isOpen = ({ state }: Approval) => state === "pending" || state === "approved";
  const shown = known.filter((approval) => options.all || isOpen(approval));
  const head = ["ID", "STATE", "USER", "VIA", "QUERY", "EXPIRES"];
  const toCells = (approval: Approval) => {
    const { id, state, username, via, client, expires } = approval;
    const way = client === undefined ? via : `${via} ${plainly(client)}`;
    return [id, state, username, way, approvalSummary(approval), formatMoment(expires / 1000)];
  };
  printList(shown, options, head, toCells, viewApproval);
}

function describe(approval: Approval): string[] {
  const { id, state, username, via, client, asked, expires, author, decided, reason } = approval;
  const rules = approval.rules.map((one) => {
    const { entry, boundary, permissions } = one;
    const rule = entry === undefined ? `the boundary ${boundary}` : `the entry for ${entry}`;
    return `  rule       ${permissions.join(" ")} by ${plainly(rule).replace(/^"|"$/g, "")}; approvers: ${describeApprovers(one)}`;
  });
  const way = client === undefined ? via : `${via}, client ${plainly(client)}`;
  const lines = [
    `Approval ${id}`,
    `  state      ${state}, until ${formatMoment(expires / 1000)}`,
    `  requester  ${username} (${way}) at ${formatMoment(asked / 1000)}`,
    `  query      ${approvalSummary(approval)}`,
    ...rules,
  ];
  if (author !== undefined && decided !== undefined) {
    lines.push(
      `  decided    by ${author.kind} ${plainly(author.name)} at ${formatMoment(decided / 1000)}`,
    );
  }
  if (reason !== undefined) lines.push(`  reason     ${plainly(reason)}`);
  return lines;
}

function describeRows(preview: PreviewRows | NoPreview): string[] {
  if ("reason" in preview) return [`No Preview: ${visibleJson(preview.reason)}.`];
  const { affected, before, after } = preview;
  const rows = (title: string, texts: readonly string[]) =>
    texts.length === 0 ? [] : [`${title}:`, ...texts.map((row) => `  ${visibleJson(row)}`)];
  const isMore = affected > Math.max(before.length, after.length);
  return [
    `Preview: ${counted(affected, "row")}${isMore ? " (only the first are shown)" : ""}. Effects on other tables are not shown.`,
    ...rows("before", before),
    ...rows("after", after),
  ];
}

async function show(id: string, options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const { store, approval } = await openApproval(loaded, id);
  const kept = await store.readQuery(approval);
  const isPending = approval.state === "pending";
  const preview = kept && isPending ? await readPreview(loaded, approval, kept) : undefined;
  const rows = preview && "digest" in preview ? preview : undefined;
  if (rows !== undefined) {
    await store.recordShown(approval.id, operator(), rows.digest);
    await store.recordRows(approval.id, operator(), countShown(rows));
  }
  const query = kept?.body.toString("utf8");
  if (options.json) {
    const read = (row: string): unknown => parseUnrounded(row);
    const { affected, digest, before = [], after = [] } = rows ?? {};
    const shown = { affected, digest, before: before.map(read), after: after.map(read) };
    return printJson({ ...viewApproval(approval), query, preview: rows ? shown : preview });
  }
  print(describe(approval).join("\n"));
  if (query === undefined) return print("The query has been deleted.");
  const words = queryInWords(query).map((text) => `  ${approval.username} will ${text}`);
  print(["", "Query:", visibleJson(query), "", "In words:", ...words].join("\n"));
  if (preview !== undefined) print(["", ...describeRows(preview)].join("\n"));
}

type DecideOptions = CommonOptions & { readonly reason?: string };

async function decide(id: string, state: ApprovalDecision["state"], options: DecideOptions) {
  const loaded = loadFor(options);
  const { store, approval: known } = await openApproval(loaded, id);
  const wait = loaded.configuration.approvals.wait * 1000;
  const decision = { state, author: operator(), reason: readReason(options.reason ?? ""), wait };
  const isDone = await store.decide(known.id, decision);
  const approval = (await store.find(known.id)) ?? known;
  if (!isDone) throw new Error(`${known.id} is already ${approval.state}`);
  if (options.json) return printJson(viewApproval(approval));
  const { username, expires, touched } = approval;
  if (state === "denied") return print(`Denied: ${approvalSummary(approval)} by ${username}.`);
  const rows = touched === undefined ? "" : ", on the rows that you were shown";
  const until = formatMoment(expires / 1000);
  print(`Approved: ${approvalSummary(approval)} by ${username}${rows}, once, until ${until}.`);
}

const help = `
list --json     list pending approvals, and approved ones that are not used yet
  --all         also list used, denied and expired ones from the last day or with a kept query
show --json     show a query and, while it is pending, the rows it would affect
  <id>          the approval's id
approve --json  allow the query to run once; after a preview, only on the rows that were shown
  <id>          the approval's id
deny --json     deny the query
  <id>          the approval's id
  --reason <text>  a reason that the client can read
`;

export function approvalsCommand(): Command {
  const approve = (id: string, options: CommonOptions) => decide(id, "approved", options);
  const deny = (id: string, options: DecideOptions) => decide(id, "denied", options);
  const commands = defineCommands(help, { list, show, approve, deny });
  const description = "list, show, approve and deny queries that need approval";
  return commandGroup("approvals", description, commands);
}
