{{/* What a schema cannot say, with what to do. */}}
{{- define "tidegate.checks" -}}
{{- if not (or .Values.destinations .Values.destinationsFile) -}}
{{- fail "destinations: at least one is needed, such as --set 'destinations[0].name=shop,destinations[0].url=https://api.example.com/v1/posts'" -}}
{{- end -}}
{{- $names := list -}}
{{- range $i, $d := .Values.destinations -}}
{{- if has $d.name $names -}}
{{- fail (printf "destinations[%d].name: %s is there twice; each name once" $i $d.name) -}}
{{- end -}}
{{- $names = append $names $d.name -}}
{{- if and $d.headers $d.headersSecret -}}
{{- fail (printf "destinations[%d]: headers and headersSecret both set DESTINATION_%d_HEADERS; leave one out" $i $i) -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.redis.url .Values.redis.secret.name .Values.existingSecret) -}}
{{- fail "redis: set redis.url, or redis.secret.name, or existingSecret with a key REDIS_URL" -}}
{{- end -}}
{{- /* As Tidegate reads it: without blanks around it, the scheme in any case. */ -}}
{{- $redis := .Values.redis.url | trim | lower -}}
{{- if or (regexMatch "^[a-z-]+://.*:.*@" $redis) (regexMatch "[?&]([a-z_]*password|[^=&]*%[^=&]*)=" $redis) -}}
{{- fail "redis.url: holds a password, which would be readable in a ConfigMap; put the URL into a Secret and name that in redis.secret" -}}
{{- end -}}
{{- $auto := .Values.worker.autoscaling -}}
{{- if $auto.enabled -}}
{{- if not $auto.serverAddress -}}
{{- fail "worker.autoscaling.serverAddress: is needed, such as http://prometheus-operated.monitoring:9090" -}}
{{- end -}}
{{- if gt (int $auto.minReplicas) (int $auto.maxReplicas) -}}
{{- fail "worker.autoscaling: minReplicas is greater than maxReplicas" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.metricsService.enabled) -}}
{{- fail "serviceMonitor: needs metricsService.enabled" -}}
{{- end -}}
{{- $api := .Values.api -}}
{{- if and $api.enabled (not $api.tokens.secret) -}}
{{- fail "api.tokens.secret: is needed, as others in the cluster reach the API: make a file with 'tidegate token new --file tokens.json' and a Secret of it with 'kubectl create secret generic tidegate-api --from-file=tokens.json'" -}}
{{- end -}}
{{- if and $api.ingress.enabled (not $api.enabled) -}}
{{- fail "api.ingress: needs api.enabled" -}}
{{- end -}}
{{- if and $api.ingress.enabled (not $api.ingress.hosts) -}}
{{- fail "api.ingress.hosts: is needed, such as [tidegate.example.com]" -}}
{{- end -}}
{{- end -}}
