import { once } from "node:events";
import { connect, type Socket } from "node:net";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { wireRequest } from "../kit/wire.ts";
import { statelessCall } from "../mcp/messages.ts";
import { callTool, refusalOf } from "./mcp.ts";

const mebibyte = 1024 * 1024;
const config = `[server]
max_buffered_bytes = ${30 * mebibyte}

[mcp]
result_bytes = ${16 * mebibyte}
`;
const select = { database: "main", from: "files", columns: ["*"], order_by: { column: "id" } };

/** Rows of a mebibyte, more than the buffers of a connection take. */
async function fill(gateway: TestGateway, token: string): Promise<void> {
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "content", type: "text" },
  ];
  await gateway.query({ CreateTable: { database: "main", table: "files", columns } }, token);
  for (let id = 0; id < 15; id++) {
    const values = [{ id, content: "x".repeat(mebibyte - 1024) }];
    const answer = await gateway.query(
      { Insert: { database: "main", table: "files", values } },
      token,
    );
    if (answer.status !== 200) throw new Error(answer.text);
  }
}

/** Asks for all rows, and reads no more of the answer than its first bytes. */
async function stall(gateway: TestGateway, token: string): Promise<Socket> {
  const { host, port } = new URL(gateway.url);
  const socket = connect(Number(port), "127.0.0.1");
  const { headers, body } = statelessCall("tools/call", { name: "select", arguments: select });
  const fields = { ...headers, Host: host, authorization: `Bearer ${token}` };
  socket.write(wireRequest("POST /mcp", fields, body));
  await once(socket, "readable");
  return socket;
}

t.test("results that are not taken count to their user, until they are", async (t) => {
  const gateway = await startGateway(t, { config });
  const alice = await gateway.addUser("alice", "ReadWrite");
  const owner = await gateway.login();
  await fill(gateway, owner);
  const stalled = await stall(gateway, alice);
  t.teardown(() => stalled.destroy());
  t.equal(refusalOf(await callTool(gateway, "select", select, alice)), "busy", "no second one");
  const few = { ...select, columns: ["id"] };
  t.equal(refusalOf(await callTool(gateway, "select", few, owner)), undefined, "others are served");
  stalled.destroy();
  await eventually("the room is given back", async () => {
    return refusalOf(await callTool(gateway, "select", select, alice)) === undefined;
  });
});
