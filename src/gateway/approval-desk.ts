/** Approvals as the console's users see them and decide on them. */
import { limitsText } from "../access/query-limits.ts";
import type { Approval } from "../approvals/approval.ts";
import {
  type NoPreview,
  type PreviewQuery,
  previewQuery,
  whyUnseen,
} from "../approvals/preview.ts";
import { readShownRows, type ShownRows } from "../approvals/shown-rows.ts";
import type { ApprovalDesk } from "../console/options.ts";
import { Refusal } from "../refusal.ts";
import { fieldLines } from "../upstream/query-form.ts";
import type { Gateway } from "./gateway.ts";
import { credentialOf } from "./query-flow.ts";
import { LIMITS_HEADER } from "./upward-request.ts";

/** Milliseconds that a Preview may take. */
const TIMEOUT_MS = 60_000;
/** Bytes of a Preview that are shown; a hundred rows before and after. */
const LARGEST_PREVIEW = 4 * 1024 * 1024;

async function askPreview(
  gateway: Gateway,
  user: string,
  { body, query, limits }: PreviewQuery,
): Promise<ShownRows | NoPreview> {
  const fields = fieldLines({
    "content-type": "application/json",
    [LIMITS_HEADER]: limitsText(limits),
    ...credentialOf(gateway),
  });
  const answer = await gateway.routing.queriesOf(query).ask({
    ...{ user, body, fields, isRead: true, largest: LARGEST_PREVIEW },
    hold: () => {},
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (answer.isCut) return { reason: "the rows are too long to be shown" };
  return readShownRows(answer.status, answer.body.toString("utf8"));
}

async function rowsFor(
  gateway: Gateway,
  approver: string,
  approval: Approval,
  body: Buffer,
): Promise<ShownRows | NoPreview> {
  const { queries, access, log } = gateway;
  if (!queries.isEngine) return { reason: "no gatehouse engine answers behind the gateway" };
  const preview = previewQuery(access.snapshot, queries.grammar, approval, body);
  if ("reason" in preview) return preview;
  const unseen = whyUnseen(access.snapshot, queries.grammar, approver, approval);
  if (unseen !== undefined) return { reason: unseen };
  try {
    return await askPreview(gateway, approver, preview);
  } catch (error) {
    if (error instanceof Refusal) return { reason: error.message };
    log.error({ err: error }, "the rows of an approval cannot be shown");
    return { reason: "the engine's answer cannot be read" };
  }
}

/** The approvals of a gateway, for its console. */
export function approvalDesk(gateway: Gateway): ApprovalDesk {
  const { approvals } = gateway;
  return {
    // Nothing is made for those who only look.
    use: async (work) =>
      (await approvals.counts()) === undefined ? undefined : approvals.use(work),
    get wait() {
      return gateway.configuration.approvals.wait * 1000;
    },
    rowsFor: (approver, approval, body) => rowsFor(gateway, approver, approval, body),
  };
}
