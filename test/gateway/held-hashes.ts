/** Gateways whose hashes stand still, and logins at them. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { hashBounds } from "../../src/identity/hashing.ts";
import { ADMIN_PASSWORD, type Answer, temporaryHome } from "../kit/gateway.ts";
import { childrenOf } from "../kit/process-info.ts";
import { openSetting, type Setting } from "./kit.ts";

const { atOnce, waiting } = hashBounds({ memory: 64, time: 1, parallelism: 1 });
/** Logins that wait when the queue is full. */
export const WAITING = waiting;
/** Logins that run or wait when the queue is full. */
export const FULL = atOnce + waiting;
export const right = { username: "admin", password: ADMIN_PASSWORD };
export const busy = { status: 503, code: "login_busy" };

/** The processes that hash for a gateway. */
export function hashersOf({ gateway }: Setting): number[] {
  return childrenOf(gateway.service.child.pid ?? 0).filter((child) =>
    readFileSync(`/proc/${child}/cmdline`, "utf8").includes("hash-program"),
  );
}

/** The one process that hashes for a gateway, which the first login has started. */
export function hasherOf(setting: Setting): number {
  const [hasher, ...others] = hashersOf(setting);
  if (hasher === undefined || others.length > 0) throw new Error("not exactly one");
  return hasher;
}

/** Has the process that hashes keep its hashes to itself while a file is there. */
function holding(file: string): NodeJS.ProcessEnv {
  const program = `
    import { existsSync } from "node:fs";
    if (process.argv[1]?.includes("hash-program")) {
      const send = process.send.bind(process);
      process.send = function give(message) {
        const isHeld = message.kind === "answer" && existsSync(${JSON.stringify(file)});
        if (isHeld) setTimeout(give, 20, message);
        else send(message);
      };
    }
  `;
  return { NODE_OPTIONS: `--import=data:text/javascript;base64,${btoa(program)}` };
}

/** A gateway whose hashes stand still until the test lets them go on. */
export async function openStopped(t: Test, config = "", more = "") {
  const auth = `max_failures_per_address = 1000\n${more}`;
  const home = temporaryHome(t);
  const file = path.join(home, "hold");
  const setting = await openSetting(t, { auth, config, home, env: holding(file) });
  const token = await setting.gateway.addUser("bob", "ReadOnly");
  const hold = () => writeFileSync(file, "");
  hold();
  const goOn = () => rmSync(file, { force: true });
  t.teardown(goOn);
  return { setting, token, hasher: hasherOf(setting), goOn, hold };
}

export function logIn(
  { gateway }: Setting,
  fields: { username: string; password: string },
  options: { forwardedFor?: string; signal?: AbortSignal } = {},
): Promise<Answer> {
  const { forwardedFor, signal } = options;
  const headers = {
    "content-type": "application/json",
    ...(forwardedFor !== undefined && { "x-forwarded-for": forwardedFor }),
  };
  const body = JSON.stringify(fields);
  return gateway.request("/login", { method: "POST", headers, body, ...(signal && { signal }) });
}

/** Sends logins of as many users, and counts their answers by status. */
export function flood(
  setting: Setting,
  count: number,
  options: Parameters<typeof logIn>[2] | ((at: number) => Parameters<typeof logIn>[2]) = {},
) {
  const statuses: number[] = [];
  const all = Array.from({ length: count }, async (_, at) => {
    const fields = { username: `user-${at}`, password: "a wrong one" };
    const answer = await logIn(
      setting,
      fields,
      typeof options === "function" ? options(at) : options,
    ).catch(() => undefined);
    statuses.push(answer?.status ?? 0);
  });
  const having = (status: number) => statuses.filter((one) => one === status).length;
  return { having, done: Promise.all(all) };
}
