{{/* The environment that all components share. */}}

{{/* A value as text. Numbers of a values file are floats, which would come out as 3.6e+06. */}}
{{- define "tidegate.text" -}}
{{- if kindIs "slice" . -}}
{{- $words := list -}}
{{- range . }}{{ $words = append $words (include "tidegate.text" .) }}{{ end -}}
{{- join "," $words -}}
{{- else if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $name, $value := . }}{{ $pairs = append $pairs (printf "%s:%s" $name $value) }}{{ end -}}
{{- join "," $pairs -}}
{{- else if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* What the ConfigMaps of all components hold. */}}
{{- define "tidegate.sharedData" -}}
{{- if .Values.destinationsFile }}
DESTINATIONS_FILE: /etc/tidegate/destinations/destinations.yaml
{{- end }}
{{- if and .Values.redis.url (not .Values.redis.secret.name) }}
REDIS_URL: {{ .Values.redis.url | quote }}
{{- end }}
{{- end -}}

{{/* What is no secret: the data of the ConfigMap. */}}
{{- define "tidegate.configData" -}}
{{- include "tidegate.sharedData" . }}
{{- range $name, $value := .Values.config }}
{{ $name }}: {{ include "tidegate.text" $value | quote }}
{{- end }}
{{- range $i, $d := .Values.destinations }}
{{- range $key, $value := omit $d "authToken" "authTokens" "authPool" "headersSecret" "callbackSecret" "oauthClientSecret" "oauthRefreshTokens" "signSecret" "answers" "circuitBreaker" }}
DESTINATION_{{ $i }}_{{ $key | snakecase | upper }}: {{ include "tidegate.text" $value | quote }}
{{- end }}
{{- range $key, $value := $d.circuitBreaker }}
DESTINATION_{{ $i }}_CIRCUIT_BREAKER_{{ $key | snakecase | upper }}: {{ include "tidegate.text" $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The same for the API, which publishes nothing and sends no alerts: of destinations it knows that
they are there. Their URLs may be secrets to who reads it; a name is not taken without one, so
it gets one that leads nowhere (RFC 6761). */}}
{{- define "tidegate.apiConfigData" -}}
{{- include "tidegate.sharedData" . }}
{{- range $name, $value := .Values.config }}
{{- if not (regexMatch "^(ALERT|SLACK|PAGERDUTY)_" $name) }}
{{ $name }}: {{ include "tidegate.text" $value | quote }}
{{- end }}
{{- end }}
{{- range $i, $d := .Values.destinations }}
DESTINATION_{{ $i }}_NAME: {{ $d.name | quote }}
DESTINATION_{{ $i }}_URL: "https://destination.invalid/"
{{- end }}
{{- end -}}

{{/* The ports of Redis for network policies: those named, and those in redis.url. */}}
{{- define "tidegate.redisPorts" -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.egress.redisPorts }}{{ $ports = append $ports (int .) }}{{ end -}}
{{- /* Without IPv6 addresses, which have colons too. */ -}}
{{- $hosts := regexReplaceAll "\\[[^\\]]*\\]" (regexFind "://[^/?]*" .Values.redis.url) "" -}}
{{- range regexFindAll ":[0-9]+" $hosts -1 }}{{ $ports = append $ports (trimPrefix ":" . | int) }}{{ end -}}
{{- range $ports | uniq }}
- {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end -}}

{{/* What comes from Secrets, as a container's env. */}}
{{- define "tidegate.secretEnv" -}}
{{- with .Values.redis.secret }}
{{- if .name }}
- name: REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}}
{{- end }}
{{- end }}
{{- range $i, $d := .Values.destinations }}
{{- range $key, $suffix := dict "authToken" "AUTH_TOKEN" "headersSecret" "HEADERS" "callbackSecret" "CALLBACK_SECRET" "oauthClientSecret" "OAUTH_CLIENT_SECRET" "signSecret" "SIGN_SECRET" }}
{{- with index $d $key }}
- name: DESTINATION_{{ $i }}_{{ $suffix }}
  valueFrom: {secretKeyRef: {name: {{ .secret | quote }}, key: {{ .key | quote }}}}
{{- end }}
{{- end }}
{{- with $d.authTokens }}
- name: DESTINATION_{{ $i }}_AUTH_TOKENS_FILE
  value: {{ printf "/etc/tidegate/tokens-%d/%s" $i .key | quote }}
{{- end }}
{{- with $d.authPool }}
- name: DESTINATION_{{ $i }}_AUTH_POOL_FILE
  value: {{ printf "/etc/tidegate/pool-%d/%s" $i .key | quote }}
{{- end }}
{{- with $d.answers }}
- name: DESTINATION_{{ $i }}_ANSWERS_FILE
  value: {{ printf "/etc/tidegate/answers-%d/%s" $i .key | quote }}
{{- end }}
{{- with $d.oauthRefreshTokens }}
- name: DESTINATION_{{ $i }}_OAUTH_REFRESH_TOKENS_FILE
  value: {{ printf "/etc/tidegate/refresh-tokens-%d/%s" $i .key | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A container's envFrom; what env says wins over it. */}}
{{- define "tidegate.envFrom" -}}
- configMapRef:
    name: {{ include "tidegate.fullname" . }}
{{- with .Values.existingSecret }}
- secretRef:
    name: {{ . }}
{{- end }}
{{- with .Values.extraEnvFrom }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Files. No subPath: Kubernetes would not update them when the Secret changes. */}}
{{- define "tidegate.redisVolume" -}}
{{- with .Values.redis.ca }}
{{- if .secretName }}
- name: redis-ca
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items: [{key: {{ .key | quote }}, path: {{ .key | quote }}}]
{{- end }}
{{- end }}
{{- end -}}

{{- define "tidegate.redisVolumeMount" -}}
{{- if .Values.redis.ca.secretName }}
- name: redis-ca
  mountPath: /etc/tidegate/redis-ca
  readOnly: true
{{- end }}
{{- end -}}

{{/* The destinations file, of workers and API. */}}
{{- define "tidegate.fileVolume" -}}
{{- if .Values.destinationsFile }}
- name: destinations
  configMap:
    name: {{ include "tidegate.fullname" . }}-destinations
{{- end }}
{{- end -}}

{{- define "tidegate.fileVolumeMount" -}}
{{- if .Values.destinationsFile }}
- name: destinations
  mountPath: /etc/tidegate/destinations
  readOnly: true
{{- end }}
{{- end -}}

{{- define "tidegate.volumes" -}}
{{- include "tidegate.redisVolume" . }}
{{- include "tidegate.fileVolume" . }}
{{- range $i, $d := .Values.destinations }}
{{- with $d.authTokens }}
- name: tokens-{{ $i }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items: [{key: {{ .key | quote }}, path: {{ .key | quote }}}]
{{- end }}
{{- with $d.authPool }}
- name: pool-{{ $i }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items: [{key: {{ .key | quote }}, path: {{ .key | quote }}}]
{{- end }}
{{- with $d.answers }}
- name: answers-{{ $i }}
  configMap:
    name: {{ .configMap }}
    items: [{key: {{ .key | quote }}, path: {{ .key | quote }}}]
{{- end }}
{{- with $d.oauthRefreshTokens }}
- name: refresh-tokens-{{ $i }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items: [{key: {{ .key | quote }}, path: {{ .key | quote }}}]
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tidegate.volumeMounts" -}}
{{- include "tidegate.redisVolumeMount" . }}
{{- include "tidegate.fileVolumeMount" . }}
{{- range $i, $d := .Values.destinations }}
{{- if $d.authTokens }}
- name: tokens-{{ $i }}
  mountPath: /etc/tidegate/tokens-{{ $i }}
  readOnly: true
{{- end }}
{{- if $d.authPool }}
- name: pool-{{ $i }}
  mountPath: /etc/tidegate/pool-{{ $i }}
  readOnly: true
{{- end }}
{{- if $d.answers }}
- name: answers-{{ $i }}
  mountPath: /etc/tidegate/answers-{{ $i }}
  readOnly: true
{{- end }}
{{- if $d.oauthRefreshTokens }}
- name: refresh-tokens-{{ $i }}
  mountPath: /etc/tidegate/refresh-tokens-{{ $i }}
  readOnly: true
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* GOMEMLIMIT for (resources): 90 % of the memory limit, which leaves room for stacks and the
runtime's own; empty without a limit. */}}
{{- define "tidegate.goMemLimit" -}}
{{- $limit := include "tidegate.text" (dig "limits" "memory" "" .) -}}
{{- if $limit -}}
{{- $unit := regexFind "[A-Za-z]+$" $limit -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- if not (and (hasKey $factors $unit) (regexMatch "^[0-9]+$" (trimSuffix $unit $limit))) -}}
{{- fail (printf "resources.limits.memory: %s is not an integer with Ki, Mi, Gi, k, M, G or no unit" $limit) -}}
{{- end -}}
{{- $bytes := mul (trimSuffix $unit $limit | int64) (index $factors $unit) -}}
{{- printf "%dKiB" (div (mul (div $bytes 1024) 9) 10) -}}
{{- end -}}
{{- end -}}

{{/* Where pods run: (list $ "worker" .Values.worker). */}}
{{- define "tidegate.placement" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- with index . 2 }}
{{- if .topologySpread.enabled }}
{{- $spread := .topologySpread }}
topologySpreadConstraints:
  {{- range $spread.topologyKeys }}
  - topologyKey: {{ . }}
    maxSkew: {{ $spread.maxSkew }}
    whenUnsatisfiable: {{ $spread.whenUnsatisfiable }}
    labelSelector:
      matchLabels: {{- include "tidegate.selectorLabels" (list $root $component) | nindent 8 }}
    # Pods of one version among themselves, or a rollout would count those that leave.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}
