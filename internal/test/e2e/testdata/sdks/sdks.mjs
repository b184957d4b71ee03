// Calls fakes through the gateway by SDKs as their users do, and prints what each made of it.

import { REST } from '@discordjs/rest'
import { Octokit } from '@octokit/rest'
import { WebClient } from '@slack/web-api'
import OpenAI from 'openai'
import Stripe from 'stripe'

const { GATEWAY: base, TOKEN: token, STEP: step } = process.env
const said = async (call) => {
  try {
    return await call()
  } catch (e) {
    return `${e.constructor.name} ${e.status ?? e.statusCode ?? ''}`.trim()
  }
}
const stripe = (key) => new Stripe(key, { maxNetworkRetries: 0, httpClient: Stripe.createFetchHttpClient((url, init) => fetch(String(url).replace('https://api.stripe.com', `${base}/stripe`), init)) })
const discord = new REST({ api: `${base}/discord`, version: '10', authPrefix: 'Bearer', timeout: 1500, retries: 2 }).setToken(token)
const message = () => discord.post('/channels/1/messages', { body: { content: 'hello' } })
const openai = (options) => new OpenAI({ baseURL: `${base}/openai`, apiKey: token, ...options })
const chat = (client, n) => client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: `${n}` }] })

const steps = {
  async healthy() {
    const impatient = openai({ timeout: 1500, maxRetries: 5, defaultHeaders: { Prefer: 'wait=60' } })
    const all = await Promise.all(Array.from({ length: 20 }, (_, n) => said(async () => (await chat(impatient, n)).choices[0].message.content)))
    const octokit = new Octokit({ baseUrl: `${base}/github`, auth: token })
    const slack = new WebClient(token, { slackApiUrl: `${base}/slack/` })
    return {
      openai: [...new Set(all)].join(),
      octokit: await said(async () => (await octokit.paginate(octokit.rest.issues.listForRepo, { owner: 'o', repo: 'r' })).length),
      stripe: await said(async () => (await stripe(token).customers.create({ name: 'a' })).id),
      stripeWrongToken: await said(async () => (await stripe('tg_wrong').customers.create({ name: 'a' })).id),
      slack: await said(async () => (await slack.chat.postMessage({ channel: 'C1', text: 'a' })).ts),
      discord: await said(async () => (await message()).id),
    }
  },
  async open() {
    return { discord: await said(message), openai: await said(() => chat(openai({ maxRetries: 0, defaultHeaders: { Prefer: 'wait=1, handling=strict' } }), 100)) }
  },
}
console.log(JSON.stringify(await steps[step]()))
