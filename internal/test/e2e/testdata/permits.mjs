// Clients of permits: node permits.mjs DESTINATION API CLIENTS

import { PermitRefused, Tidegate } from '../../../sdk/typescript/index.js'

const [destination, api, clients] = process.argv.slice(2)
const tidegate = new Tidegate()

const work = async () => {
  for (;;) {
    try {
      const permit = await tidegate.permit(destination, { wait: 30, lease: 5 })
      await permit.response(await fetch(`${api}/node`, { method: 'POST', body: '{}', signal: AbortSignal.timeout(5000) }))
    } catch (e) {
      if (!(e instanceof PermitRefused)) throw e
    }
  }
}

await Promise.all(Array.from({ length: Number(clients) }, work))
