import { once } from "node:events";
import { connect as connectSocket, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { Client } from "pg";
import type { ServerAddress } from "./address.ts";

/** How long the server may take to take the request, in milliseconds. */
const patience = 2000;

/** The codes that stand where a protocol version would (PostgreSQL, "Message Formats"). */
const cancelCode = 80_877_102;
const tlsCode = 80_877_103;

/**
 * Asks the server to end what a connection of ours is doing, on a connection of its own, as the
 * protocol wants it. It is a request: nobody says whether it came in time.
 */
export async function requestCancel(address: ServerAddress, client: Client): Promise<void> {
  const key = keyOf(client);
  if (key === undefined) return;
  const socket = open(address);
  socket.on("error", () => socket.destroy());
  socket.setTimeout(patience, () => socket.destroy());
  try {
    await once(socket, "connect");
    const secured = address.ssl === false ? socket : await secure(address, socket);
    secured.end(message(cancelCode, ...key));
    await once(secured, "close");
  } catch {
    // The connection is given up in any case, and the statement ends by its time limit.
  } finally {
    socket.destroy();
  }
}

/** What the server has told the driver to show with such a request. */
function keyOf(client: Client): [number, number] | undefined {
  const id = "processID" in client ? client.processID : undefined;
  const secret = "secretKey" in client ? client.secretKey : undefined;
  return typeof id === "number" && typeof secret === "number" ? [id, secret] : undefined;
}

function open({ host, port }: ServerAddress): Socket {
  return host.startsWith("/")
    ? connectSocket(`${host}/.s.PGSQL.${port}`)
    : connectSocket(port, host);
}

async function secure({ host, ssl }: ServerAddress, socket: Socket): Promise<Socket> {
  socket.write(message(tlsCode));
  const [answer] = await once(socket, "data");
  if (String(answer) !== "S") throw new Error("The server takes no TLS");
  const options = typeof ssl === "object" ? ssl : {};
  const name = isIP(host) === 0 ? { servername: host } : {};
  const secured = connectTls({ host, ...name, ...options, socket });
  secured.on("error", () => secured.destroy());
  await once(secured, "secureConnect");
  return secured;
}

function message(...numbers: number[]): Buffer {
  const bytes = Buffer.alloc(4 * (numbers.length + 1));
  bytes.writeInt32BE(bytes.length, 0);
  for (const [index, number] of numbers.entries()) bytes.writeInt32BE(number, 4 * (index + 1));
  return bytes;
}
