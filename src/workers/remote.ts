/** What a worker has of what there is once in a gateway: all of it is asked of the main process. */
import type { ServerResponse } from "node:http";
import type { Shared } from "../gateway/shared.ts";
import type { Hashing } from "../identity/hashing.ts";
import type { LoginThrottle } from "../identity/throttle.ts";
import type { SessionRegister } from "../mcp/proxy/sessions.ts";
import { type StreamRegister, tooManyStreams } from "../mcp/proxy/streams.ts";
import type { MainChannel } from "./calls.ts";

function remoteThrottle(main: MainChannel): LoginThrottle {
  return {
    async begin(username, { address, isShared, signal }) {
      const attempt = await main.ask("beginLogin", { username, address, isShared }, signal);
      return {
        async settle(outcome) {
          await main.ask("settleLogin", { attempt, outcome });
        },
      };
    },
  };
}

function remoteHashing(main: MainChannel): Hashing {
  return {
    async run(costs, { signal, ...client }, work) {
      const turn = await main.ask("enterHashing", { costs, client }, signal);
      try {
        return await work((order) => main.ask("derive", { turn, order }));
      } finally {
        await main.ask("leaveHashing", turn);
      }
    },
    close: async () => {},
  };
}

function remoteSessions(main: MainChannel): SessionRegister {
  return {
    open: (id, username) => main.ask("openSession", { id, username }),
    use: (id, username) => main.ask("useSession", { id, username }),
    end: async (id) => {
      await main.ask("endSession", id);
    },
  };
}

function remoteStreams(main: MainChannel): StreamRegister {
  return {
    async open(username, response: ServerResponse, id) {
      const stream = await main.ask("openStream", username);
      if (stream === undefined) throw tooManyStreams(id);
      const close = () => void main.ask("closeStream", stream);
      if (response.closed) close();
      else response.once("close", close);
    },
  };
}

/** What is shared, as a worker has it. */
export function remoteShared(main: MainChannel): Shared {
  return {
    throttle: remoteThrottle(main),
    hashing: remoteHashing(main),
    openLimit:
      (limit, bounds) =>
      ({ address, isShared }) =>
        main.ask("countAddress", { limit, bounds, address, isShared }),
    sessions: remoteSessions(main),
    streams: remoteStreams(main),
    configure: () => {},
  };
}
