/** Gateways with their own engine, where some queries require approval. */
import type { Test } from "tap";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { type Answer, type RunOptions, startGateway, type TestGateway } from "../kit/gateway.ts";
import { columnsOf } from "../kit/queries.ts";
import { runWarm } from "../kit/warm-command.ts";

/** An entry under which deletions by `bot` require approval. */
export function careful(more = "", username = "bot"): string {
  return `[[acl]]\nusername = "${username}"\ndatabase = "main"\nrole = "ReadWrite"\nrequire_approval = ["DELETE"]\n${more}\n`;
}

export interface Careful {
  readonly gateway: TestGateway;
  ask(token: string, query: object | string, approval?: string): Promise<Answer>;
  run(...flags: string[]): Promise<Record<string, unknown>>;
  readonly root: string;
  readonly bot: string;
  count(): Promise<number>;
}

export const orders = { database: "main", table: "orders" };
export const removal = {
  Delete: { ...orders, where: { column: "state", cmp: "=", value: "old" } },
};

/** Removes one order. */
export const removeOne = (id: number) => ({
  Delete: { ...orders, where: { column: "id", cmp: "=", value: id } },
});

export async function carefulOn(gateway: TestGateway): Promise<Careful> {
  const root = await tokenOf(gateway, "root");
  return {
    gateway,
    root,
    bot: await tokenOf(gateway, "bot"),
    async ask(token, query, approval) {
      const headers: Record<string, string> = {
        "content-type": "application/json",
        authorization: `Bearer ${token}`,
      };
      if (approval !== undefined) headers["x-gatehouse-approval"] = approval;
      const body = typeof query === "string" ? query : JSON.stringify(query);
      return gateway.request("/query", { method: "POST", headers, body });
    },
    async run(...flags) {
      const result = await runWarm(gateway.home, ["approvals", ...flags, "--json"]);
      if (result.code !== 0) throw new Error(result.stderr);
      return JSON.parse(result.stdout);
    },
    async count() {
      const all = { Select: { database: "main", from: "orders", columns: ["id"] } };
      const { text } = await gateway.query(all, root);
      return JSON.parse(text).data.length;
    },
  };
}

const grants = ["root * Owner", "bot other ReadOnly", "dave main DbAdmin", "wim main ReadWrite"];

export async function openCareful(
  t: Test,
  { more = careful(), ...options }: RunOptions & { more?: string } = {},
): Promise<Careful> {
  const home = await staffedHome(t, grants, more);
  const opened = await carefulOn(await startGateway(t, { home, ...options }));
  const columns = columnsOf({ id: "int", state: "text" });
  await opened.ask(opened.root, { CreateTable: { ...orders, columns } });
  const values = Array.from({ length: 15 }, (_, id) => ({ id, state: id < 12 ? "old" : "new" }));
  const answer = await opened.ask(opened.root, { Insert: { ...orders, values } });
  if (answer.status !== 200) throw new Error(answer.text);
  return opened;
}

export function idIn({ status, text, body }: Answer): string {
  const { approval } = body;
  if (status !== 202 || typeof approval !== "object" || approval === null) throw new Error(text);
  return "id" in approval ? String(approval.id) : "";
}

/** Waits for the audit line on a step of an approval. */
export function step({ service }: TestGateway, id: string, name: string) {
  return service.logged(
    ({ audit, approval, msg }) => audit === true && approval === id && msg === name,
  );
}

export function stepsOf({ service }: TestGateway, id: string): unknown[] {
  return service.log.filter(({ approval }) => approval === id).map(({ msg }) => msg);
}

export async function listed({ gateway }: Careful): Promise<Record<string, unknown>[]> {
  const flags = ["approvals", "list", "--all", "--json"];
  return JSON.parse((await runWarm(gateway.home, flags)).stdout);
}
