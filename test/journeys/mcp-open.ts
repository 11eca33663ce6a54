import type { Test } from "tap";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { staffedHome } from "./staff.ts";

const grants = ["root * Owner", "alice main ReadWrite"];

/** A gateway with an embedded engine, whose address is in its challenges. */
export async function open(t: Test, config = "", auth = ""): Promise<TestGateway> {
  return startGateway(t, { home: await staffedHome(t, grants), config, auth });
}
