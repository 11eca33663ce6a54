import { createHmac } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { Agent, request } from "undici";
import { errorMessage } from "../../core/base/client-error.ts";
import { readCredential } from "../../core/config/resolve.ts";
import type { Configuration } from "../../core/config/schema.ts";
import type { Log } from "../../core/observe/log.ts";
import type { Metrics } from "../../core/observe/metrics.ts";
import { placeName } from "../../core/query/names.ts";
import { type Approval, approvalSummary } from "./approval.ts";

/** Milliseconds before each try. */
const DELAYS_MS = [0, 1000, 5000];
const TIMEOUT_MS = 10_000;
/** Tries of a gateway that stops. */
const LAST_TRIES_MS = 2000;

type Hook = NonNullable<Configuration["approvals"]["notify"]>;

interface NotifierOptions {
  readonly configuration: Configuration;
  readonly log: Log;
  readonly metrics: Metrics | undefined;
  readonly consoleUrl: () => string | undefined;
}

/** The body of a notification. It has names, and no value of the query. */
function describe(approval: Approval, consoleUrl: string | undefined): string {
  const { id, username: user, operations, operationCount } = approval;
  const tables = operations.flatMap(({ database, tables: named }) =>
    named.length === 0 ? [placeName(database)] : named.map((table) => placeName(database, table)),
  );
  const url = consoleUrl === undefined ? undefined : `${consoleUrl}/approvals/${id}`;
  const expires = new Date(approval.expires).toISOString();
  const how = url ?? `gatehouse approvals show ${id}`;
  return JSON.stringify({
    text: `${user} requests approval for ${approvalSummary(approval)} before ${expires}: ${how}`,
    approval: {
      id,
      user,
      operations: [...new Set(operations.map(({ operation }) => operation))],
      ...(operationCount > operations.length ? { operation_count: operationCount } : {}),
      tables: [...new Set(tables)],
      url,
      expires,
    },
  });
}

/** @throws Error unless the hook answers with 2xx. Its message never has the URL, a secret of some. */
async function post(
  { url, secret_file: file }: Hook,
  body: string,
  checkReaders: boolean,
  dispatcher: Agent,
  stopping: AbortSignal,
): Promise<void> {
  const secret = readCredential(file, checkReaders, "secret");
  const signature = createHmac("sha256", secret).update(body).digest("hex");
  const { statusCode, body: answer } = await request(url, {
    method: "POST",
    dispatcher,
    signal: AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), stopping]),
    headers: {
      "content-type": "application/json",
      "x-gatehouse-signature": `sha256=${signature}`,
    },
    body,
  });
  answer.on("error", () => {}).destroy();
  if (statusCode < 200 || statusCode > 299) throw new Error(`the hook answered ${statusCode}`);
}

/** Posts approvals that wait to a hook. Undefined without `approvals.notify`. */
export function openNotifier(options: NotifierOptions) {
  const { configuration, log, metrics, consoleUrl } = options;
  const { notify: hook } = configuration.approvals;
  if (hook === undefined) return undefined;
  const dispatcher = new Agent({ connections: 4, headersTimeout: TIMEOUT_MS });
  const stopping = new AbortController();
  const running = new Set<Promise<void>>();

  async function send(hook: Hook, id: string, find: () => Promise<Approval | undefined>) {
    let body: string | undefined;
    let reason = "the gateway stops";
    for (const delay of DELAYS_MS) {
      try {
        await wait(delay, undefined, { signal: stopping.signal });
        if (body === undefined) {
          const approval = await find();
          if (approval === undefined) return;
          body = describe(approval, consoleUrl());
        }
        await post(hook, body, configuration.auth.check_permissions, dispatcher, stopping.signal);
        metrics?.notified("sent");
        return;
      } catch (error) {
        if (stopping.signal.aborted) break;
        reason = errorMessage(error);
      }
    }
    metrics?.notified("failed");
    log.error({ approval: id, reason }, "a notification of an approval was not accepted");
  }

  return {
    /** Posts one notification, in the background, of an approval that `find` reads. */
    notify(id: string, find: () => Promise<Approval | undefined>): void {
      const sending = send(hook, id, find);
      running.add(sending);
      void sending.finally(() => running.delete(sending));
    },
    async close(): Promise<void> {
      const end = setTimeout(() => stopping.abort(), LAST_TRIES_MS);
      await Promise.all(running);
      clearTimeout(end);
      await dispatcher.destroy();
    },
  };
}
