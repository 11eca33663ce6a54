import type { Test } from "tap";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { staffedHome, tokenOf } from "./staff.ts";

export const roles = {
  owner: "Owner",
  dbadmin: "DbAdmin",
  writer: "ReadWrite",
  reader: "ReadOnly",
};

const grants = [
  ...["root * Owner", "stranger elsewhere ReadOnly"],
  ...Object.entries(roles).map(([name, role]) => `${name} main ${role}`),
];

export const database = "main";

export const columns = [
  { name: "id", type: "int", primary_key: true },
  { name: "note", type: "text" },
];

/** A gateway over its own engine, with a table `t` in `main`. */
export async function open(t: Test): Promise<{ gateway: TestGateway; root: string }> {
  const gateway = await startGateway(t, { home: await staffedHome(t, grants) });
  const root = await tokenOf(gateway, "root");
  await gateway.query({ CreateDatabase: { database } }, root);
  await gateway.query({ CreateTable: { database, table: "t", columns } }, root);
  return { gateway, root };
}
