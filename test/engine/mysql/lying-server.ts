import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";

/** Protocol 4.1 with plugins, and an offer to load local files (MySQL, "Capabilities Flags"). */
const capabilities = 0x0008_a285;
const ok = Buffer.from([0, 0, 0, 2, 0, 0, 0]);

export class LyingServer {
  clientFlags: number | undefined;
  hasAsked = false;
  received = "";
  readonly #file: string;
  readonly #server: Server;

  constructor(file: string) {
    this.#file = file;
    this.#server = createServer((socket) => this.#greet(socket));
  }

  async listen(): Promise<number> {
    await once(this.#server.listen(0, "127.0.0.1"), "listening");
    const { port }: Partial<AddressInfo> = Object(this.#server.address());
    return port ?? 0;
  }

  close(): void {
    this.#server.close();
  }

  #greet(socket: Socket): void {
    socket.on("error", () => {});
    socket.write(packet(0, greeting()));
    socket.on("data", (data) => this.#answer(socket, Buffer.from(data)));
  }

  #answer(socket: Socket, data: Buffer): void {
    this.received += data.toString("latin1");
    const sequence = data.readUInt8(3);
    if (this.clientFlags === undefined || sequence === 1) {
      this.clientFlags = data.readUInt32LE(4);
      socket.write(packet(2, ok));
    } else if (sequence === 0) {
      this.hasAsked = true;
      socket.write(packet(1, Buffer.concat([Buffer.from([0xfb]), Buffer.from(this.#file)])));
    } else {
      socket.end();
    }
  }
}

function packet(sequence: number, payload: Buffer): Buffer {
  const header = Buffer.alloc(4);
  header.writeUIntLE(payload.length, 0, 3);
  header.writeUInt8(sequence, 3);
  return Buffer.concat([header, payload]);
}

/** The first packet of a server (MySQL, "Protocol::HandshakeV10"). */
function greeting(): Buffer {
  const numbers = Buffer.alloc(32);
  numbers.writeUInt32LE(1, 0);
  numbers.write("saltsalt", 4, "latin1");
  numbers.writeUInt16LE(capabilities & 0xffff, 13);
  numbers.writeUInt8(45, 15);
  numbers.writeUInt16LE(2, 16);
  numbers.writeUInt16LE(capabilities >>> 16, 18);
  numbers.writeUInt8(21, 20);
  return Buffer.concat([
    Buffer.from([10]),
    Buffer.from("8.0.36\0"),
    numbers.subarray(0, 31),
    Buffer.from("saltsaltsalt\0"),
    Buffer.from("mysql_native_password\0"),
  ]);
}
